// When a packet is to leave, so that the stream has the pace that its PCRs say.
//
// A PCR is due at its distance from the first one, behind a delay that takes up what the network's
// jitter was; a packet between two PCRs at the bytes' share of the rate of the two before it. The
// sender's clock is not ours: what comes early or late on average moves the line, by a 256th of
// what it is off for each PCR, so that a delay of its own accord neither grows nor shrinks. A line
// ends a second behind its last PCR: packets then wait for the delay, each for itself.
//
// Invariants, which is_valid() looks at: 1. The time that a packet is due at never lies before that
// of the packet before it. 2. A rate is that of two PCRs a second apart at most, on a line.
#pragma once

#include <cstdint>

#include "apps/tsrelay/ts_inspector_datapath.h"

namespace bedplate::relay {

class Pacer {
 public:
  // `delay_ns`: how long a packet waits whose arrival is right on time; over 0.
  explicit Pacer(uint64_t delay_ns = 0) noexcept : delay_ns_(delay_ns) {}

  // When the next packet is due that came at `now_ns` with `bytes` of payload and this clock.
  uint64_t due_ns(const TsClock& clock, uint32_t bytes, uint64_t now_ns) noexcept;
  // Ends the line: the next packets are another sender's.
  void forget() noexcept { end_line(); }
  // How often the line began anew: at the first PCR, and where it was not to be kept.
  uint64_t restart_count() const noexcept { return restart_count_; }
  bool is_valid() const noexcept {
    if (rate_bytes_ > 0 && (!has_line_ || rate_ticks_ == 0)) return false;
    return last_due_ns_ >= earliest_ns_ && rate_ticks_ <= kPcrHz;
  }

 private:
  // More off than the delay twice over is no jitter.
  static constexpr uint64_t kDelaysOff = 2;
  static constexpr uint64_t kLineNsMax = 1'000'000'000;  // without a PCR

  void end_line() noexcept;
  void restart(uint64_t pcr, uint64_t now_ns) noexcept;

  uint64_t delay_ns_;
  bool has_line_ = false;
  uint64_t pcr_ = 0;         // the last one
  uint64_t pcr_due_ = 0;     // and when that is due
  uint64_t bytes_ = 0;       // since it
  uint64_t rate_ticks_ = 0;  // of the PCRs before: so long
  uint64_t rate_bytes_ = 0;  // took so many bytes
  uint64_t heard_ns_ = 0;    // when a PCR came last
  uint64_t last_due_ns_ = 0;
  uint64_t earliest_ns_ = 0;  // as of the packet before
  uint64_t restart_count_ = 0;
};

}  // namespace bedplate::relay
