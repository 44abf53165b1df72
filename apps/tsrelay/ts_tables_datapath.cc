#include "apps/tsrelay/ts_tables_datapath.h"

#include <algorithm>

#include "apps/tsrelay/ts_inspector_datapath.h"
#include "platform/assert.h"

namespace bedplate::relay {
namespace {

constexpr uint16_t kPidMask = 0x1FFF;
constexpr uint32_t kPatEntryBytes = 4;
constexpr uint32_t kPmtHeadBytes = 4;
constexpr uint32_t kStreamEntryBytes = 5;

}  // namespace

bool TsTables::is_valid() const noexcept {
  uint32_t used = 0;
  uint32_t used_count = 0;
  for (uint32_t i = 0; i < kProgramsMax; ++i) {
    if (!programs_[i].is_used) continue;
    used |= 1U << i;
    ++used_count;
    const uint8_t reading = entries_[programs_[i].pid].program;
    if (reading >= kProgramsMax || !programs_[reading].is_used) return false;
    if (programs_[reading].pid != programs_[i].pid) return false;
  }
  if (used_count != report_->programs || named_count_ > kPidsMax) return false;
  for (uint32_t i = 0; i < named_count_; ++i) {
    const Named& named = named_[i];
    if (entries_[named.pid].named != i + 1 || named.programs == 0) return false;
    if ((named.programs & ~used) != 0 || (named.continuous & ~named.programs) != 0) return false;
  }
  return true;
}

void TsTables::forget() noexcept {
  for (Program& program : programs_) {
    program.is_used = false;
    program.reader.restart();
  }
  std::ranges::fill(entries_, PidEntry{});
  named_count_ = 0;
  report_->programs = 0;
  pat_ = {};
  pat_reader_.restart();
  is_pat_missing_ = has_begun_ = false;
  BP_DCHECK_SLOW(is_valid());
}

uint32_t TsTables::clock_rank(uint16_t pid) const noexcept {
  uint32_t rank = kNoRank;
  for (const Program& program : programs_) {
    const bool is_its = program.is_used && program.has_map && program.clock_pid == pid;
    if (is_its) rank = std::min(rank, program.order);
  }
  return rank;
}

void TsTables::add(uint16_t pid, std::span<const std::byte> payload, bool begins_unit,
                   uint64_t now_ns) noexcept {
  BP_DCHECK(is_table(pid));
  if (pid == kPatPid) {
    pat_reader_.add(payload, begins_unit,
                    [&](auto section) noexcept { read_pat(section, now_ns); });
    return;
  }
  programs_[entries_[pid].program].reader.add(
      payload, begins_unit, [&](auto section) noexcept { read_pmt(pid, section, now_ns); });
}

// ---- Programs -----------------------------------------------------------------------------------

uint32_t TsTables::find(uint16_t number, uint16_t pid) const noexcept {
  for (uint32_t i = 0; i < kProgramsMax; ++i) {
    const Program& program = programs_[i];
    if (program.is_used && program.number == number && program.pid == pid) return i;
  }
  return kNone;
}

uint32_t TsTables::add_program(uint16_t number, uint16_t pid, uint64_t now_ns) noexcept {
  uint32_t index = 0;
  while (index < kProgramsMax && programs_[index].is_used) ++index;
  if (index == kProgramsMax) return kNone;
  Program& program = programs_[index];
  program.reader.restart();
  program.is_used = true;
  program.is_missing = program.has_map = program.is_whole = false;
  program.number = number;
  program.pid = pid;
  program.clock_pid = kNullPid;
  program.seen_ns = now_ns;
  ++report_->programs;
  if (entries_[pid].program == kNone) {
    entries_[pid].program = static_cast<uint8_t>(index);
    inspector_->is_another(pid);
  }
  return index;
}

void TsTables::remove_program(uint32_t index) noexcept {
  Program& program = programs_[index];
  BP_DCHECK(program.is_used && report_->programs > 0);
  ++stamp_;
  drop_unnamed(index);
  program.is_used = false;
  --report_->programs;
  PidEntry& entry = entries_[program.pid];
  if (entry.program != index) return;
  entry.program = kNone;
  for (uint32_t i = 0; i < kProgramsMax && entry.program == kNone; ++i) {
    if (!programs_[i].is_used || programs_[i].pid != program.pid) continue;
    entry.program = static_cast<uint8_t>(i);
    programs_[i].reader.restart();
  }
  if (entry.program == kNone) inspector_->is_another(program.pid);
}

void TsTables::read_pat(std::span<const std::byte> section, uint64_t now_ns) noexcept {
  SectionHead head;
  bool is_broken = false;
  if (!parse_section(section, &head, &is_broken)) {
    ++(is_broken ? report_->crc_errors : report_->pat_errors);
    return;
  }
  if (head.table != kPatTable) {
    ++report_->pat_errors;
    return;
  }
  pat_seen_ns_ = now_ns;
  is_pat_missing_ = false;
  if (!head.is_current || head.section > head.last_section) return;
  const bool is_same = pat_.is_there && pat_.stream == head.number &&
                       pat_.version == head.version && pat_.last_section == head.last_section;
  if (!is_same) {
    pat_ = {true, head.number, head.version, head.last_section, {}};
    ++version_;
  }
  pat_.sections.set(head.section);
  ++stamp_;
  // Programs that end free their slots for new programs.
  list_programs(head, false, now_ns);
  drop_unlisted(head, now_ns);
  list_programs(head, true, now_ns);
  BP_DCHECK_SLOW(is_valid());
}

void TsTables::list_programs(const SectionHead& head, bool adds, uint64_t now_ns) noexcept {
  std::span<const std::byte> rest = head.body;
  for (uint32_t order = head.section * 256U; rest.size() >= kPatEntryBytes; ++order) {
    const uint16_t number = load_u16(rest.data());
    const uint16_t pid = load_u16(rest.data() + 2) & kPidMask;
    rest = rest.subspan(kPatEntryBytes);
    if (number == 0 || pid == kPatPid) continue;
    uint32_t index = find(number, pid);
    if (index == kNone && adds) index = add_program(number, pid, now_ns);
    if (index == kNone) continue;
    Program& program = programs_[index];
    program.section = head.section;
    program.version = version_;
    program.stamp = stamp_;
    program.order = order;
    program.listed_ns = now_ns;
  }
}

// Removes programs that the PAT no longer lists. A program that the current version has listed ends
// as soon as its section comes without it: the section has changed without a new version.
void TsTables::drop_unlisted(const SectionHead& head, uint64_t now_ns) noexcept {
  const bool is_whole = pat_.sections.count() == head.last_section + 1U;
  const uint64_t stamp = stamp_;
  for (uint32_t i = 0; i < kProgramsMax; ++i) {
    const Program& program = programs_[i];
    if (!program.is_used || program.stamp == stamp) continue;
    const bool is_old = program.version != version_;
    const bool has_ended = is_old ? is_whole || now_ns > program.listed_ns + kListedNsMax
                                  : program.section == head.section;
    if (has_ended) remove_program(i);
  }
}

// ---- PIDs ---------------------------------------------------------------------------------------

void TsTables::read_pmt(uint16_t pid, std::span<const std::byte> section,
                        uint64_t now_ns) noexcept {
  SectionHead head;
  bool is_broken = false;
  if (!parse_section(section, &head, &is_broken)) {
    if (is_broken) ++report_->crc_errors;
    return;
  }
  if (head.table != kPmtTable) return;  // other tables may share its PID
  const uint32_t index = find(head.number, pid);
  if (index == kNone) return;
  Program& program = programs_[index];
  program.seen_ns = now_ns;
  program.is_missing = false;
  if (!head.is_current || head.section != 0 || head.body.size() < kPmtHeadBytes) return;
  if (program.has_map && program.is_whole && program.crc == head.crc) return;
  program.crc = head.crc;
  read_map(index, head, now_ns);
  BP_DCHECK_SLOW(is_valid());
}

void TsTables::read_map(uint32_t index, const SectionHead& head, uint64_t now_ns) noexcept {
  Program& program = programs_[index];
  program.is_whole = true;
  const uint16_t clock_pid = load_u16(head.body.data()) & kPidMask;
  const bool is_clock = clock_rank(clock_pid) != kNoRank;
  program.has_map = true;
  program.clock_pid = clock_pid;
  if (!is_clock) inspector_->is_another_clock(clock_pid);
  ++stamp_;
  // The PID of a program's clock is continuous, whatever else it carries.
  name(index, program.clock_pid, true, now_ns);
  const size_t information = load_u16(head.body.data() + 2) & 0xFFFU;
  std::span<const std::byte> rest = head.body.subspan(kPmtHeadBytes);
  rest = rest.subspan(std::min(information, rest.size()));
  while (rest.size() >= kStreamEntryBytes) {
    const uint8_t type = load_u8(rest.data());
    const uint16_t pid = load_u16(rest.data() + 1) & kPidMask;
    const size_t wanted = load_u16(rest.data() + 3) & 0xFFFU;
    rest = rest.subspan(kStreamEntryBytes);
    const size_t bytes = std::min(wanted, rest.size());
    name(index, pid, is_continuous(type, rest.first(bytes)), now_ns);
    rest = rest.subspan(bytes);
  }
  drop_unnamed(index);
}

void TsTables::name(uint32_t program, uint16_t pid, bool is_continuous, uint64_t now_ns) noexcept {
  if (pid == kNullPid || pid == kPatPid) return;
  PidEntry& entry = entries_[pid];
  if (entry.named == 0) {
    if (named_count_ == kPidsMax) {
      programs_[program].is_whole = false;
      return;
    }
    named_[named_count_] = {.pid = pid};
    entry.named = static_cast<uint16_t>(++named_count_);
    inspector_->is_another(pid);
  }
  Named& named = named_[entry.named - 1];
  named.programs |= 1U << program;
  named.stamp = stamp_;
  if (!is_continuous) return;
  if (named.continuous == 0) {
    named.seen_ns = now_ns;
    named.is_missing = false;
  }
  named.continuous |= 1U << program;
  named.continuous_stamp = stamp_;
}

// Drops the PIDs that the program has named before, but not with this stamp.
void TsTables::drop_unnamed(uint32_t program) noexcept {
  const uint32_t others = ~(1U << program);
  for (uint32_t i = named_count_; i-- > 0;) {
    Named& named = named_[i];
    if (named.continuous_stamp != stamp_) named.continuous &= others;
    if (named.stamp != stamp_) named.programs &= others;
    if (named.programs != 0) continue;
    const uint16_t pid = named.pid;
    entries_[pid].named = 0;
    const uint32_t last = --named_count_;
    if (i != last) {
      named = named_[last];
      entries_[named.pid].named = static_cast<uint16_t>(i + 1);
    }
    inspector_->is_another(pid);
  }
}

void TsTables::look_for_missing(uint64_t now_ns) noexcept {
  if (!has_begun_ || now_ns < looked_ns_ + kLookNs) return;
  looked_ns_ = now_ns;
  if (!is_pat_missing_ && now_ns > pat_seen_ns_ + kTableNsMax) {
    is_pat_missing_ = true;
    ++report_->pat_errors;
  }
  for (Program& program : programs_) {
    if (!program.is_used || program.is_missing) continue;
    if (now_ns <= program.seen_ns + kTableNsMax) continue;
    program.is_missing = true;
    ++report_->pmt_errors;
  }
  for (uint32_t i = 0; i < named_count_; ++i) {
    Named& named = named_[i];
    if (named.continuous == 0 || named.is_missing) continue;
    if (now_ns <= named.seen_ns + kPidNsMax) continue;
    named.is_missing = true;
    ++report_->pid_errors;
  }
}

}  // namespace bedplate::relay
