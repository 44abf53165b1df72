// Computes when each packet is to leave, so that the stream keeps the pace of its PCRs.
//
// The first PCR is due a delay after its arrival; the delay absorbs the network's jitter. Each
// later PCR is due at its distance from the first one. This mapping from PCR to time is the line. A
// packet between two PCRs is due by its byte position, at the rate of the last two PCRs. The
// sender's clock drifts against ours: each PCR moves the line by a 256th of its own deviation, so
// that the delay neither grows nor shrinks over time. A line ends a second after its last PCR: then
// each packet only waits for the delay.
//
// Invariants, which is_valid() checks: 1. No packet is due before its predecessor. 2. A rate comes
// from two PCRs of one line, at most a second apart.
#pragma once

#include <cstdint>

#include "apps/tsrelay/ts_inspector_datapath.h"

namespace bedplate::relay {

class Pacer {
 public:
  // `delay_ns`: the delay of a packet that arrives right on time. due_ns() requires one over 0.
  explicit Pacer(uint64_t delay_ns = 0) noexcept : delay_ns_(delay_ns) {}

  // Returns the time at which the next packet is due. `clock`: its PCR, as TsInspector::inspect()
  // returned it; `bytes`: of its payload; `now_ns`: its arrival.
  uint64_t due_ns(const TsClock& clock, uint32_t bytes, uint64_t now_ns) noexcept;
  // Ends the line: the next packets are from another sender.
  void forget() noexcept { end_line(); }
  // The number of lines begun: at the first PCR, and at each PCR that does not continue a line.
  uint64_t restart_count() const noexcept { return restart_count_; }
  bool is_valid() const noexcept {
    if (rate_bytes_ > 0 && (!has_line_ || rate_ticks_ == 0)) return false;
    return last_due_ns_ >= earliest_ns_ && rate_ticks_ <= kPcrHz;
  }

 private:
  // A PCR that deviates by more than twice the delay is not jitter.
  static constexpr uint64_t kDelaysOff = 2;
  static constexpr uint64_t kLineNsMax = 1'000'000'000;  // the longest time without a PCR

  void end_line() noexcept;
  void restart(uint64_t pcr, uint64_t now_ns) noexcept;

  uint64_t delay_ns_;
  bool has_line_ = false;
  uint64_t pcr_ = 0;         // the last PCR
  uint64_t pcr_due_ = 0;     // the due time of pcr_
  uint64_t bytes_ = 0;       // since pcr_
  uint64_t rate_ticks_ = 0;  // between the last two PCRs
  uint64_t rate_bytes_ = 0;  // between the last two PCRs
  uint64_t heard_ns_ = 0;    // the time of the last PCR
  uint64_t last_due_ns_ = 0;
  uint64_t earliest_ns_ = 0;  // last_due_ns_ before the last packet
  uint64_t restart_count_ = 0;
};

}  // namespace bedplate::relay
