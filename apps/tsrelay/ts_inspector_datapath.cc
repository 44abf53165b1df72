#include "apps/tsrelay/ts_inspector_datapath.h"

#include <algorithm>

#include "platform/assert.h"

namespace bedplate::relay {
namespace {

constexpr uint64_t kDiscontinuityTicks = kPcrHz / 10;
constexpr uint16_t kPidMask = 0x1FFF;
constexpr uint32_t kPatEntryBytes = 4;
constexpr uint32_t kStreamEntryBytes = 5;

}  // namespace

bool TsInspector::is_valid() const noexcept {
  if (program_count_ > kProgramsMax || watched_count_ > kPidsMax || clock_count_ > kClocksMax) {
    return false;
  }
  for (uint32_t i = 0; i < program_count_; ++i) {
    if (pids_[programs_[i].pid].program != i) return false;
  }
  for (uint32_t i = 0; i < watched_count_; ++i) {
    if (pids_[watched_[i].pid].watch != i + 1) return false;
  }
  for (uint32_t i = 0; i < clock_count_; ++i) {
    if (pids_[clocks_[i].pid].clock != i || clocks_[i].count > 2) return false;
  }
  return good_syncs_ == 0 || bad_syncs_ == 0;
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

// One that repeats the one before it is lawful once; without payload the counter stands still.
void TsInspector::check_counter(const TsPacket& packet, Pid& pid) noexcept {
  BP_DCHECK(packet.counter <= 0x0F && packet.pid < kPidCount);
  const auto gap = static_cast<uint16_t>(gap_);
  const bool is_first = pid.counter == kNone || pid.gap != gap || packet.is_discontinuous;
  const bool is_same = packet.counter == pid.counter;
  const bool is_next = packet.counter == ((pid.counter + 1) & 0x0F);
  const bool repeats = !is_first && is_same && packet.has_payload;
  if (!is_first) {
    const bool is_right = packet.has_payload ? is_next || (is_same && !pid.is_repeated) : is_same;
    if (!is_right) {
      ++report_.continuity_errors;
      if (pid.program != kNone) programs_[pid.program].reader.restart();
      if (packet.pid == kPatPid) pat_reader_.restart();
    }
  }
  pid.is_repeated = repeats;
  pid.counter = packet.counter;
  pid.gap = gap;
}

// Between PCRs of one rate the bytes say when one should be: the rate is that of the two before.
void TsInspector::note_pcr(const TsPacket& packet, uint64_t position) noexcept {
  Pid& pid = pids_[packet.pid];
  if (pid.clock == kNone) {
    if (clock_count_ == kClocksMax) return;
    pid.clock = static_cast<uint8_t>(clock_count_);
    clocks_[clock_count_++] = {.pid = packet.pid};
  }
  ++report_.pcrs;
  BP_DCHECK(pid.clock < clock_count_ && clocks_[pid.clock].pid == packet.pid);
  Clock& clock = clocks_[pid.clock];
  if (packet.is_discontinuous || clock.gap != gap_) clock.count = 0;
  if (clock.count > 0) {
    const uint64_t ticks = pcr_distance(clock.pcr, packet.pcr);
    BP_DCHECK(position > clock.position);
    const uint64_t bytes = position - clock.position;
    if (ticks > kDiscontinuityTicks || ticks == 0) {
      ++report_.pcr_discontinuities;
      clock.count = 0;
    } else {
      report_.pcr_interval_max_ns = std::max(report_.pcr_interval_max_ns, pcr_ns(ticks));
      // At most 100 ms and what comes in it: products fit 64 bits.
      report_.bits_per_second = bytes * 8 * kPcrHz / ticks;
      if (clock.count > 1 && clock.last_bytes > 0) {
        const uint64_t wanted = bytes * clock.last_ticks / clock.last_bytes;
        const uint64_t off = ticks > wanted ? ticks - wanted : wanted - ticks;
        report_.pcr_accuracy_max_ns = std::max(report_.pcr_accuracy_max_ns, pcr_ns(off));
      }
      clock.last_ticks = ticks;
      clock.last_bytes = bytes;
    }
  }
  clock.count = static_cast<uint8_t>(std::min(clock.count + 1, 2));
  clock.pcr = packet.pcr;
  clock.position = position;
  clock.gap = gap_;
}

void TsInspector::watch(uint16_t pid, uint64_t now_ns) noexcept {
  if (pids_[pid].watch != 0 || pid == kNullPid || watched_count_ == kPidsMax) return;
  watched_[watched_count_] = {.pid = pid, .seen_ns = now_ns};
  pids_[pid].watch = static_cast<uint16_t>(++watched_count_);
}

void TsInspector::read_pat(std::span<const std::byte> section, uint64_t now_ns) noexcept {
  SectionHead head;
  bool is_broken = false;
  if (!parse_section(section, &head, &is_broken)) {
    ++(is_broken ? report_.crc_errors : report_.pat_errors);
    return;
  }
  if (head.table != kPatTable) {
    ++report_.pat_errors;
    return;
  }
  pat_seen_ns_ = now_ns;
  is_pat_missing_ = false;
  if (!head.is_current) return;
  for (; head.body.size() >= kPatEntryBytes; head.body = head.body.subspan(kPatEntryBytes)) {
    const uint16_t number = load_u16(head.body.data());
    const uint16_t pid = load_u16(head.body.data() + 2) & kPidMask;
    if (number == 0 || pid == kPatPid || pids_[pid].program != kNone) continue;
    if (program_count_ == kProgramsMax) return;
    Program& program = programs_[program_count_];
    program.number = number;
    program.pid = pid;
    program.seen_ns = now_ns;
    pids_[pid].program = static_cast<uint8_t>(program_count_++);
    report_.programs = program_count_;
  }
}

void TsInspector::read_pmt(Program& program, std::span<const std::byte> section,
                           uint64_t now_ns) noexcept {
  SectionHead head;
  bool is_broken = false;
  if (!parse_section(section, &head, &is_broken)) {
    if (is_broken) ++report_.crc_errors;
    return;
  }
  if (head.table != kPmtTable) return;  // others may share its PID
  program.seen_ns = now_ns;
  program.is_missing = false;
  if (!head.is_current || head.body.size() < 4) return;
  watch(load_u16(head.body.data()) & kPidMask, now_ns);
  const size_t information = load_u16(head.body.data() + 2) & 0xFFFU;
  std::span<const std::byte> rest = head.body.subspan(4);
  rest = rest.subspan(std::min(information, rest.size()));
  while (rest.size() >= kStreamEntryBytes) {
    watch(load_u16(rest.data() + 1) & kPidMask, now_ns);
    const size_t bytes = kStreamEntryBytes + (load_u16(rest.data() + 3) & 0xFFFU);
    rest = rest.subspan(std::min(bytes, rest.size()));
  }
}

void TsInspector::look_for_missing(uint64_t now_ns) noexcept {
  if (begun_ns_ == 0 || now_ns < looked_ns_ + kLookNs) return;
  looked_ns_ = now_ns;
  if (!is_pat_missing_ && now_ns > pat_seen_ns_ + kTableNsMax) {
    is_pat_missing_ = true;
    ++report_.pat_errors;
  }
  for (uint32_t i = 0; i < program_count_; ++i) {
    Program& program = programs_[i];
    if (program.is_missing || now_ns <= program.seen_ns + kTableNsMax) continue;
    program.is_missing = true;
    ++report_.pmt_errors;
  }
  for (uint32_t i = 0; i < watched_count_; ++i) {
    Watched& watched = watched_[i];
    if (watched.is_missing || now_ns <= watched.seen_ns + kPidNsMax) continue;
    watched.is_missing = true;
    ++report_.pid_errors;
  }
}

TsClock TsInspector::inspect(std::span<const std::byte> payload, uint64_t now_ns) noexcept {
  BP_DCHECK(now_ns >= begun_ns_ && "time does not go back");
  TsClock pace;
  if (begun_ns_ == 0) begun_ns_ = looked_ns_ = pat_seen_ns_ = now_ns;
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
      continue;  // nothing that it says is to be trusted
    }
    if (packet.pid == kNullPid) {
      ++report_.null_packets;
      continue;
    }
    Pid& pid = pids_[packet.pid];
    check_counter(packet, pid);
    if (pid.watch != 0) {
      BP_DCHECK(pid.watch <= watched_count_);
      watched_[pid.watch - 1].seen_ns = now_ns;
      watched_[pid.watch - 1].is_missing = false;
    }
    if (packet.has_pcr) {
      note_pcr(packet, position);
      if (!pace.has_pcr && pid.clock == 0) {
        pace = {true, packet.pcr, static_cast<uint32_t>(offset), packet.is_discontinuous};
      }
    }
    const bool is_pat = packet.pid == kPatPid;
    if ((!is_pat && pid.program == kNone) || !packet.has_payload || pid.is_repeated) continue;
    if (packet.is_scrambled) {
      ++(is_pat ? report_.pat_errors : report_.pmt_errors);
      continue;
    }
    BP_DCHECK(packet.payload_offset < kTsPacketBytes);
    const std::span content(bytes + packet.payload_offset,
                            kTsPacketBytes - uint32_t{packet.payload_offset});
    if (is_pat) {
      pat_reader_.add(content, packet.begins_unit,
                      [&](auto section) noexcept { read_pat(section, now_ns); });
    } else {
      BP_DCHECK(pid.program < program_count_);
      Program& program = programs_[pid.program];
      program.reader.add(content, packet.begins_unit,
                         [&](auto section) noexcept { read_pmt(program, section, now_ns); });
    }
  }
  look_for_missing(now_ns);
  BP_DCHECK_SLOW(is_valid());
  return pace;
}

}  // namespace bedplate::relay
