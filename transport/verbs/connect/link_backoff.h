// The back-off of one link: how long it has been down, when it is dialed next, and when the log
// says again that its peer cannot be reached.
//
//     down, and wanted      the first try is at once; the pause doubles after each, up to a maximum
//     up, and of use        its time down is over: the next one begins anew
//     up, and breaks first  its time down goes on, with the longer pause
//
// So a link that breaks as soon as it is up is dialed as seldom as one that never comes up.
//
// It touches no link. Threads: the connector's. Times are of monotonic_ns().
//
// Invariants: 1. Pauses keep within the limits of LinkTiming. (is_valid)
#pragma once

#include <cstdint>

#include "transport/verbs/connect/link_connector_options.h"

namespace bedplate {

class LinkBackoff {
 public:
  // `timing` outlives it.
  explicit LinkBackoff(const LinkTiming& timing) noexcept : timing_(&timing) {}

  // ---- The link's states ----

  void come_up(uint64_t now_ns) noexcept { up_since_ns_ = now_ns; }
  // Ends the time down if the link is up and of use: it has worked, or stayed up for long enough.
  // Returns whether it is.
  bool note_use(bool has_worked, uint64_t now_ns) noexcept;
  // Returns whether it was up.
  bool go_down() noexcept;
  // The link is wanted and down. Begins the time down if none has begun. `was_up`: it has just gone
  // down. `is_cut_off`: only another instance of the peer may come up, so there is no hurry.
  void stay_down(bool was_up, bool is_cut_off, uint64_t now_ns) noexcept;
  // Ends the time down: nobody dials it any more.
  void forget() noexcept { down_since_ns_ = 0; }

  // ---- The next try ----

  // Doubles the pause before the next try.
  void delay() noexcept;
  // The next try is no earlier: its peer dials us meanwhile.
  void wait_until(uint64_t time_ns) noexcept { next_ns_ = time_ns; }
  bool is_due(uint64_t now_ns) const noexcept { return now_ns >= next_ns_; }
  // Whether it has been down for longer than anybody should wait.
  bool is_hopeless(uint64_t now_ns) const noexcept {
    return now_ns - down_since_ns_ > timing_->give_up_ns;
  }
  // Whether the log is to say that the peer cannot be reached: then not again for a pause that
  // doubles each time.
  bool try_tell(uint64_t now_ns) noexcept;

  bool is_down() const noexcept { return down_since_ns_ != 0; }
  // When something is to be done. Requires: is_down().
  uint64_t next_ns(bool is_up) const noexcept {
    return is_up ? up_since_ns_ + timing_->backoff_ns_max : next_ns_;
  }
  bool is_valid() const noexcept;

 private:
  const LinkTiming* timing_;
  uint64_t next_ns_ = 0;
  uint64_t backoff_ns_ = 0;
  uint64_t down_since_ns_ = 0;  // 0: nobody wants it, or it is up and has been of use
  uint64_t up_since_ns_ = 0;    // 0: it is down
  uint64_t tell_ns_ = 0;        // when to say again that it cannot be reached
  uint64_t tell_pause_ns_ = 0;  // then; 0: it was not said yet in this time down
};

}  // namespace bedplate
