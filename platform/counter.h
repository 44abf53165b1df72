// A counter that one thread writes and any thread or process reads.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/version.h"

namespace bedplate {

// It uses plain loads and stores: no locked instruction, and no order with other memory. A zeroed
// Counter is valid, so counters can lie in a mapped file.
class Counter {
 public:
  // Threads: the one writer; this and the next two functions.
  void add(uint64_t amount) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void set(uint64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
  // For a peak: the counter keeps the largest value it was given.
  void raise(uint64_t value) noexcept {
    if (value > read()) set(value);
  }
  // Threads: any.
  uint64_t read() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace bedplate
