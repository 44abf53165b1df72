// Memory for the connections or layers of a test, aligned as their servers want it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "platform/assert.h"
#include "platform/cache_line.h"

namespace bedplate {

class StreamMemory {
 public:
  explicit StreamMemory(uint64_t bytes) : bytes_(bytes), memory_(bytes + kCacheLineBytes) {}

  std::span<std::byte> aligned() {
    void* first = memory_.data();
    size_t room = memory_.size();
    BP_ASSERT(std::align(kCacheLineBytes, bytes_, first, room) != nullptr);
    return {static_cast<std::byte*>(first), bytes_};
  }

 private:
  const uint64_t bytes_;
  std::vector<std::byte> memory_;
};

}  // namespace bedplate
