// The back-off of one link: how long it has been down, when it is dialed next, and when the log
// next says that its peer is unreachable.
//
//     down, and wanted      the first try is immediate; each try doubles the pause, up to a limit
//     up, and of use        the outage is over: the next one begins with the shortest pause
//     up, and never of use  if it breaks, the outage goes on, with the longer pause
//
// So a link that breaks as soon as it is up is dialed as seldom as a link that never comes up.
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
  // Ends the outage if the link is up and of use: a request has succeeded, or the link has stayed
  // up for backoff_ns_max. Returns whether it is of use.
  bool note_use(bool has_worked, uint64_t now_ns) noexcept;
  // Returns whether the link was up.
  bool go_down() noexcept;
  // Begins an outage if none has begun. `was_up`: the link has just gone down. `is_cut_off`: only
  // another instance of the peer may connect, so the pause is the longest. Requires: the link is
  // wanted and down.
  void stay_down(bool was_up, bool is_cut_off, uint64_t now_ns) noexcept;
  // Ends the outage: nobody dials the link any more.
  void forget() noexcept { down_since_ns_ = 0; }

  // ---- The next try ----

  // Puts the next try off by the pause, then doubles the pause.
  void delay() noexcept;
  // Puts the next try off until `time_ns`, because the peer is dialing us.
  void wait_until(uint64_t time_ns) noexcept { next_ns_ = time_ns; }
  bool is_due(uint64_t now_ns) const noexcept { return now_ns >= next_ns_; }
  // Whether the outage has lasted longer than give_up_ns. Requires: is_down().
  bool is_hopeless(uint64_t now_ns) const noexcept {
    return now_ns - down_since_ns_ > timing_->give_up_ns;
  }
  // Returns whether to log now that the peer is unreachable. Each time that it returns true, the
  // pause until the next log line doubles.
  bool try_tell(uint64_t now_ns) noexcept;

  // Whether an outage has begun and not ended. The link may be up again, and not yet of use.
  bool is_down() const noexcept { return down_since_ns_ != 0; }
  // The time of the next action: the next try, or, if the link is up, the end of the outage.
  // Requires: is_down().
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
  uint64_t tell_ns_ = 0;        // when to log again that it is unreachable
  uint64_t tell_pause_ns_ = 0;  // the pause then; 0: not logged in this outage
};

}  // namespace bedplate
