#include "apps/tsrelay/ts_inspector_datapath.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate::relay {
namespace {

constexpr uint64_t kDiscontinuityTicks = kPcrHz / 10;
// More bytes than this between two PCRs of one line mean that the clock has wrapped around.
constexpr uint64_t kLineBytesMax = uint64_t{1} << 32;

}  // namespace

bool TsInspector::is_valid() const noexcept {
  if (clock_count_ > kClocksMax) return false;
  for (uint32_t i = 0; i < clock_count_; ++i) {
    if (pids_[clocks_[i].pid].clock != i || clocks_[i].count > 2) return false;
  }
  return (good_syncs_ == 0 || bad_syncs_ == 0) && tables_.is_valid();
}

void TsInspector::forget() noexcept {
  tables_.forget();
  std::ranges::fill(pids_, Pid{});
  clock_count_ = 0;
  pace_pid_ = kNullPid;
  report_.bits_per_second = 0;
  good_syncs_ = bad_syncs_ = 0;
  is_in_sync_ = true;
}

// The PID keeps its clock's slot, as its PCRs may continue.
void TsInspector::is_another(uint16_t pid) noexcept {
  pids_[pid].counter = kNone;
  pids_[pid].is_repeated = false;
  is_another_clock(pid);
}

void TsInspector::is_another_clock(uint16_t pid) noexcept {
  if (pids_[pid].clock != kNone) clocks_[pids_[pid].clock].count = 0;
}

void TsInspector::check_sync(bool is_good) noexcept {
  good_syncs_ = is_good ? good_syncs_ + 1 : 0;
  bad_syncs_ = is_good ? 0 : bad_syncs_ + 1;
  if (!is_good) ++report_.sync_byte_errors;
  if (is_in_sync_ && bad_syncs_ >= kSyncLost) {
    is_in_sync_ = false;
    ++report_.sync_losses;
  } else if (!is_in_sync_ && good_syncs_ >= kSyncFound) {
    is_in_sync_ = true;
  }
}

// A packet may be repeated once; packets without payload do not advance the counter.
void TsInspector::check_counter(const TsPacket& packet, Pid& pid) noexcept {
  BP_DCHECK(packet.counter <= 0x0F && packet.pid < kPidCount);
  const auto gap = static_cast<uint16_t>(gap_);
  const bool is_first = pid.counter == kNone || pid.gap != gap || packet.is_discontinuous;
  const bool is_same = packet.counter == pid.counter;
  const bool is_next = packet.counter == ((pid.counter + 1) & 0x0F);
  const bool repeats = !is_first && is_same && packet.has_payload;
  const bool is_right = packet.has_payload ? is_next || (is_same && !pid.is_repeated) : is_same;
  if (!is_first && !is_right) ++report_.continuity_errors;
  if (is_first || !is_right) tables_.restart(packet.pid);  // its section may lack a part
  pid.is_repeated = repeats;
  pid.counter = packet.counter;
  pid.gap = gap;
}

// ---- Clocks -------------------------------------------------------------------------------------

// The clock of a PID with PCRs. If all slots are taken, a clock that a PMT names takes the slot of
// one that no PMT names.
TsInspector::Clock* TsInspector::clock_of(uint16_t pid, uint64_t now_ns) noexcept {
  if (pids_[pid].clock != kNone) return &clocks_[pids_[pid].clock];
  if (clock_count_ == kClocksMax) {
    if (tables_.clock_rank(pid) == TsTables::kNoRank) return nullptr;
    uint32_t spare = 0;
    while (tables_.clock_rank(clocks_[spare].pid) != TsTables::kNoRank) ++spare;
    BP_ASSERT(spare < clock_count_ && "there are more slots than programs");
    remove_clock(spare);
  }
  pids_[pid].clock = static_cast<uint8_t>(clock_count_);
  clocks_[clock_count_] = {.pid = pid, .seen_ns = now_ns};
  return &clocks_[clock_count_++];
}

void TsInspector::remove_clock(uint32_t index) noexcept {
  BP_DCHECK(index < clock_count_);
  pids_[clocks_[index].pid].clock = kNone;
  const uint32_t last = --clock_count_;
  if (index == last) return;
  clocks_[index] = clocks_[last];
  pids_[clocks_[index].pid].clock = static_cast<uint8_t>(index);
}

// Measures the PCR's interval and accuracy. The expected PCR follows from the bytes since the last
// PCR, at the rate of the two PCRs before.
void TsInspector::measure(Clock& clock, const TsPacket& packet, uint64_t position) noexcept {
  const uint64_t ticks = pcr_distance(clock.pcr, packet.pcr);
  BP_DCHECK(position > clock.position);
  const uint64_t bytes = position - clock.position;
  if (ticks > kDiscontinuityTicks || bytes > kLineBytesMax) {
    ++report_.pcr_discontinuities;
    clock.count = 0;
    return;
  }
  report_.pcr_interval_max_ns = std::max(report_.pcr_interval_max_ns, pcr_ns(ticks));
  // At most 100 ms, and kLineBytesMax: products fit 64 bits.
  report_.bits_per_second = bytes * 8 * kPcrHz / ticks;
  if (clock.count > 1 && clock.last_bytes > 0) {
    const uint64_t wanted = bytes * clock.last_ticks / clock.last_bytes;
    const uint64_t off = ticks > wanted ? ticks - wanted : wanted - ticks;
    report_.pcr_accuracy_max_ns = std::max(report_.pcr_accuracy_max_ns, pcr_ns(off));
  }
  clock.last_ticks = ticks;
  clock.last_bytes = bytes;
}

void TsInspector::note_pcr(const TsPacket& packet, uint64_t position, uint64_t now_ns) noexcept {
  ++report_.pcrs;
  // If no PCR at all came for a second, the fault is not the pace's clock, which keeps its role.
  if (now_ns > pcr_seen_ns_ + kClockNsMax) pace_seen_ns_ = now_ns;
  pcr_seen_ns_ = now_ns;
  Clock* clock = clock_of(packet.pid, now_ns);
  if (clock == nullptr) return;
  if (packet.is_discontinuous || clock->gap != gap_) clock->count = 0;
  // A repeated PCR has no information: a sender may repeat a packet (13818-1, 2.4.3.3).
  if (clock->count > 0 && packet.pcr == clock->pcr) return;
  if (clock->count > 0) measure(*clock, packet, position);
  clock->count = static_cast<uint8_t>(std::min(clock->count + 1, 2));
  clock->pcr = packet.pcr;
  clock->position = position;
  clock->gap = gap_;
  clock->seen_ns = now_ns;
}

// Decides if this clock, which has just had a PCR, sets the pace.
bool TsInspector::is_pace(uint16_t pid, uint64_t now_ns) noexcept {
  if (pid != pace_pid_) {
    const bool is_alive = pace_pid_ != kNullPid && now_ns <= pace_seen_ns_ + kClockNsMax;
    if (is_alive && tables_.clock_rank(pid) >= tables_.clock_rank(pace_pid_)) return false;
    pace_pid_ = pid;
  }
  pace_seen_ns_ = now_ns;
  return true;
}

// ---- Missing items, and packets -----------------------------------------------------------------

void TsInspector::look_for_missing(uint64_t now_ns) noexcept {
  tables_.look_for_missing(now_ns);
  if (now_ns < looked_ns_ + kLookNs) return;
  looked_ns_ = now_ns;
  if (now_ns > pcr_seen_ns_ + kClockNsMax) report_.bits_per_second = 0;
  for (uint32_t i = clock_count_; i-- > 0;) {
    const bool is_silent = now_ns > clocks_[i].seen_ns + kClockNsMax;
    if (is_silent && tables_.clock_rank(clocks_[i].pid) == TsTables::kNoRank) remove_clock(i);
  }
}

TsClock TsInspector::inspect(std::span<const std::byte> payload, uint64_t now_ns) noexcept {
  BP_DCHECK(now_ns >= looked_ns_ && "time does not go back");
  TsClock pace;
  tables_.begin(now_ns);
  for (size_t offset = 0; offset + kTsPacketBytes <= payload.size(); offset += kTsPacketBytes) {
    const std::byte* bytes = payload.data() + offset;
    const uint64_t position = position_;
    position_ += kTsPacketBytes;
    ++report_.packets;
    TsPacket packet;
    const bool is_good = parse_ts(bytes, &packet);
    check_sync(load_u8(bytes) == kTsSync);
    if (!is_good) continue;
    if (packet.has_error) {
      ++report_.transport_errors;
      continue;  // its content cannot be trusted
    }
    if (packet.pid == kNullPid) {
      ++report_.null_packets;
      continue;
    }
    Pid& pid = pids_[packet.pid];
    check_counter(packet, pid);
    tables_.seen(packet.pid, now_ns);
    if (packet.has_pcr) {
      note_pcr(packet, position, now_ns);
      const uint16_t before = pace_pid_;
      if (!pace.has_pcr && is_pace(packet.pid, now_ns)) {
        const bool is_new = packet.is_discontinuous || before != packet.pid;
        pace = {true, packet.pcr, static_cast<uint32_t>(offset), is_new};
      }
    }
    if (!tables_.is_table(packet.pid) || !packet.has_payload || pid.is_repeated) continue;
    if (packet.is_scrambled) {
      tables_.count_scrambled(packet.pid);
      continue;
    }
    BP_DCHECK(packet.payload_offset < kTsPacketBytes);
    const std::span content(bytes + packet.payload_offset,
                            kTsPacketBytes - uint32_t{packet.payload_offset});
    tables_.add(packet.pid, content, packet.begins_unit, now_ns);
  }
  look_for_missing(now_ns);
  BP_DCHECK_SLOW(is_valid());
  return pace;
}

}  // namespace bedplate::relay
