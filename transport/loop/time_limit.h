// A time limit for things that have to end soon after they began: handshakes, answers. It is the
// same for all of them, so they are due in the order in which they began, and one timer serves all:
//
//     begin(thing)   it is linked behind the others; the timer is armed, unless it is already
//     end(thing)     it is unlinked; the timer is left alone
//     the timer      overdue(thing) for each that is due; armed again for the first that is left
//
// So a thing that ends in time costs a few stores, and the timer wakes the loop at most once in the
// time of the limit, and never while nothing was begun.
//
// Invariants, which is_valid() looks at around each call: 1. The things are linked both ways, in
// the order of their ends. 2. While there are any, the timer is armed, for the first or earlier,
// unless they may take for ever.
#pragma once

#include <cstdint>

#include "transport/loop/event_loop.h"
#include "transport/loop/timer_queue.h"

namespace bedplate {

// A thing with a limit derives from it, or has one. It does not move while it is limited.
class Limited {
 public:
  Limited() noexcept = default;
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;

  // Whether it has begun, and has neither ended nor been overdue.
  bool is_limited() const noexcept { return end_ns_ != kNone; }

 private:
  friend class TimeLimit;
  static constexpr uint64_t kNone = 0;

  Limited* next_ = nullptr;
  Limited* previous_ = nullptr;
  uint64_t end_ns_ = kNone;
};

// Threads: the loop's. Lifetime: as long as the loop runs.
class TimeLimit {
 public:
  TimeLimit() noexcept = default;
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

  // Before the seal, once: it allocates the timer's slot. `limit_ns`: 0: things may take for ever.
  // `overdue(context, thing)` is called once for a thing that has not ended in time; it is not
  // limited any more, and others may begin and end meanwhile.
  void create(EventLoop& loop, uint64_t limit_ns, void (*overdue)(void*, Limited&) noexcept,
              void* context);

  // Requires: create() was called; `thing` is not limited.
  void begin(Limited& thing) noexcept;
  // Does nothing to a thing that is not limited.
  void end(Limited& thing) noexcept;

  // Cost: a walk through the things.
  bool is_valid() const noexcept;

 private:
  static constexpr uint64_t kForeverNs = uint64_t{1} << 62;

  bool is_on() const noexcept { return limit_ns_ < kForeverNs; }
  void unlink(Limited& thing) noexcept;
  void expired() noexcept;

  EventLoop* loop_ = nullptr;
  uint64_t limit_ns_ = 0;
  void (*overdue_)(void*, Limited&) noexcept = nullptr;
  void* context_ = nullptr;
  Limited* first_ = nullptr;
  Limited* last_ = nullptr;
  Timer timer_ = {.expired = [](void* self) noexcept { static_cast<TimeLimit*>(self)->expired(); },
                  .context = this};
};

}  // namespace bedplate
