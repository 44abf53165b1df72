#include "apps/tsrelay/pacer_datapath.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate::relay {

void Pacer::end_line() noexcept {
  has_line_ = false;
  rate_ticks_ = rate_bytes_ = 0;
}

void Pacer::restart(uint64_t pcr, uint64_t now_ns) noexcept {
  has_line_ = true;
  pcr_ = pcr;
  pcr_due_ = now_ns + delay_ns_;
  rate_ticks_ = rate_bytes_ = 0;
  ++restart_count_;
}

uint64_t Pacer::due_ns(const TsClock& clock, uint32_t bytes, uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(delay_ns_ > 0);
  uint64_t due_ns = now_ns + delay_ns_;
  if (has_line_ && now_ns > heard_ns_ + kLineNsMax) end_line();
  const uint64_t ticks = pcr_distance(pcr_, clock.pcr);
  // A repeated packet has the same PCR again, without information.
  const bool is_repeated = has_line_ && !clock.is_discontinuous && ticks == 0;
  if (clock.has_pcr && !is_repeated) {
    const uint64_t passed_bytes = bytes_ + clock.offset_bytes;
    heard_ns_ = now_ns;
    if (!has_line_ || clock.is_discontinuous || ticks > kPcrHz) {
      restart(clock.pcr, now_ns);
    } else {
      uint64_t pcr_due = pcr_due_ + pcr_ns(ticks);
      const uint64_t wanted = now_ns + delay_ns_;
      const auto off = static_cast<int64_t>(wanted - pcr_due);
      if (static_cast<uint64_t>(off < 0 ? -off : off) > kDelaysOff * delay_ns_) {
        restart(clock.pcr, now_ns);
      } else {
        pcr_due += static_cast<uint64_t>(off / 256);
        rate_ticks_ = ticks;
        rate_bytes_ = passed_bytes;
        pcr_ = clock.pcr;
        pcr_due_ = pcr_due;
      }
    }
    // The packet leaves when its first byte is due, which is before its PCR.
    due_ns = pcr_due_;
    if (rate_bytes_ > 0) {
      const uint64_t before = pcr_ns(clock.offset_bytes * rate_ticks_ / rate_bytes_);
      due_ns -= std::min(before, due_ns);
    }
    bytes_ = bytes - std::min(clock.offset_bytes, bytes);
  } else {
    if (has_line_) {
      due_ns = pcr_due_;  // at the time of the last PCR, while the rate is unknown
      if (rate_bytes_ > 0) due_ns += pcr_ns(bytes_ * rate_ticks_ / rate_bytes_);
      // If PCRs stop, packets must not wait long.
      const uint64_t limit = now_ns + kDelaysOff * delay_ns_ + delay_ns_;
      due_ns = std::min(due_ns, limit);
    }
    bytes_ += bytes;
  }
  earliest_ns_ = last_due_ns_;
  last_due_ns_ = std::max(due_ns, last_due_ns_);
  return last_due_ns_;
}

}  // namespace bedplate::relay
