// The poll sources of an event loop, in the order in which the loop polls them.
//
// Invariant, which is_valid() looks at: there are at most as many as may be, and each is there and
// has a budget and a name.
#pragma once

#include <cstdint>
#include <memory>

#include "alloc/heap_owner.h"
#include "transport/loop/loop_counters.h"
#include "transport/loop/poll_source.h"

namespace bedplate {

// A source, as EventLoop::add_source describes it.
struct LoopSource {
  PollSource* source = nullptr;
  uint32_t budget = 0;
  const char* name = nullptr;
  SourceCounters* counters = nullptr;
  HeapOwner asker = {};  // the heap owner at the time the source was added

  // Polls it in the name of the heap owner that added it.
  uint32_t poll() const noexcept {
    follow_heap_owner(asker);
    return source->poll(budget);
  }
};

// Threads: the loop's.
class LoopSources {
 public:
  // Before the seal: allocates space for `count_max` sources.
  explicit LoopSources(uint32_t count_max);

  // Adds a source, in the name of the current heap owner. Requires: as EventLoop::add_source.
  void add(PollSource& source, uint32_t budget, const char* name,
           SourceCounters* counters) noexcept;

  uint32_t count() const noexcept { return count_; }
  const LoopSource& operator[](uint32_t index) const noexcept { return sources_[index]; }

  // Calls the function of this name of each source.
  void announce_sleep() const noexcept;
  void announce_awake() const noexcept;
  // The longest that the loop may sleep, as all sources say.
  uint64_t sleep_max_ns() const noexcept;

  // Whether the invariant holds.
  bool is_valid() const noexcept;

 private:
  const uint32_t count_max_;
  uint32_t count_ = 0;
  const std::unique_ptr<LoopSource[]> sources_;
};

}  // namespace bedplate
