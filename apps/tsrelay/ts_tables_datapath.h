// The programs and PIDs that a transport stream has on air, according to its current tables: the
// programs of the PAT (ISO/IEC 13818-1, 2.4.4), and the PIDs of each PMT.
//
//     a section of the PAT  lists programs that are on air from now on. Programs that no section
//                           of this version lists are forgotten once all its sections have come,
//                           or after kListedNsMax.
//     a section of a PMT    names all PIDs of its program. A PMT with the CRC of its predecessor
//                           is skipped.
//     look_for_missing()    counts missing tables, and missing PIDs of video and audio
//                           (is_continuous()).
//     forget()              forgets all: another sender has the stream.
//
// So it holds only programs and PIDs on air, not all of the past. Tables are of fixed sizes. If a
// stream has more programs than kProgramsMax, or its programs have more PIDs than kPidsMax, the
// rest are not monitored until others end.
//
// Invariants, which is_valid() checks: 1. Each used program can be found by the PID of its PMT, and
// the report counts them. 2. Each PID in named_ has its index in entries_. 3. Each entry of named_
// has a program, and all its programs are used.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/tsrelay/psi_datapath.h"
#include "apps/tsrelay/ts_packet_datapath.h"

namespace bedplate::relay {

// Counts since the beginning, by the numbers of ETSI TR 101 290.
struct TsTableReport {
  uint64_t pat_errors = 0;  // 1.3: none for 500 ms, another table on its PID, or scrambled
  uint64_t pmt_errors = 0;  // 1.5: none of a program for 500 ms, or scrambled
  uint64_t pid_errors = 0;  // 1.6: a continuous PID is missing for 5 s
  uint64_t crc_errors = 0;  // 2.2: of PAT and PMT
  uint32_t programs = 0;    // on air now
};

class TsInspector;

class TsTables {
 public:
  static constexpr uint32_t kProgramsMax = 32;
  static constexpr uint32_t kPidsMax = 256;  // named by PMTs
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  // Both arguments outlive this.
  TsTables(TsTableReport& report, TsInspector& inspector) noexcept
      : report_(&report), inspector_(&inspector) {}

  // Begins to count missing tables, at the first call after creation or forget().
  void begin(uint64_t now_ns) noexcept {
    if (has_begun_) return;
    has_begun_ = true;
    looked_ns_ = pat_seen_ns_ = now_ns;
  }
  // Notes a packet of this PID. Called for each packet except null packets and bad ones.
  void seen(uint16_t pid, uint64_t now_ns) noexcept {
    const uint16_t named = entries_[pid].named;
    if (named == 0) return;
    named_[named - 1].seen_ns = now_ns;
    named_[named - 1].is_missing = false;
  }
  // Whether a PAT or PMTs come on this PID.
  bool is_table(uint16_t pid) const noexcept {
    return pid == kPatPid || entries_[pid].program != kNone;
  }
  // Reads a packet's payload. Requires: is_table(pid); so does count_scrambled().
  void add(uint16_t pid, std::span<const std::byte> payload, bool begins_unit,
           uint64_t now_ns) noexcept;
  void count_scrambled(uint16_t pid) noexcept {
    ++(pid == kPatPid ? report_->pat_errors : report_->pmt_errors);
  }
  // A packet is or may be missing: drops the incomplete section.
  void restart(uint16_t pid) noexcept {
    if (pid == kPatPid) pat_reader_.restart();
    if (entries_[pid].program != kNone) programs_[entries_[pid].program].reader.restart();
  }
  // Does nothing within kLookNs after the last look.
  void look_for_missing(uint64_t now_ns) noexcept;
  void forget() noexcept;

  // Returns the rank in the PAT of the first program whose clock is on this PID, or kNoRank if
  // there is none.
  uint32_t clock_rank(uint16_t pid) const noexcept;
  bool is_named(uint16_t pid) const noexcept { return entries_[pid].named != 0; }
  bool must_come(uint16_t pid) const noexcept {
    return is_named(pid) && named_[entries_[pid].named - 1].continuous != 0;
  }
  uint32_t named_count() const noexcept { return named_count_; }
  bool is_valid() const noexcept;

 private:
  static constexpr uint64_t kTableNsMax = 500'000'000;
  static constexpr uint64_t kPidNsMax = 5'000'000'000;
  static constexpr uint64_t kLookNs = 100'000'000;
  static constexpr uint64_t kListedNsMax = 10'000'000'000;  // for a version that stays incomplete
  static constexpr uint8_t kNone = 0xFF;
  static_assert(kProgramsMax <= 32, "a set of programs is a word");

  // One for each PID. Between resets, only entries of PIDs in use are touched.
  struct PidEntry {
    uint8_t program = kNone;  // its reader reads this PID, for all programs with a PMT on it
    uint16_t named = 0;       // 1 + its index in named_; 0: none
  };
  struct Program {
    bool is_used = false;
    bool is_missing = false;  // its PMT is missing, and was counted
    bool has_map = false;     // its PMT has come
    bool is_whole = false;    // all its PIDs are in named_
    uint8_t section = 0;      // the section of the PAT that names it
    uint16_t number = 0;
    uint16_t pid = 0;
    uint16_t clock_pid = kNullPid;
    uint32_t version = 0;  // the PAT version that named it last
    uint32_t order = 0;    // its position in the PAT
    uint64_t stamp = 0;    // the stamp of the PAT section that named it last
    uint32_t crc = 0;      // of its PMT
    uint64_t seen_ns = 0;
    uint64_t listed_ns = 0;
    SectionReader reader;
  };
  struct Named {
    uint16_t pid = 0;
    bool is_missing = false;
    uint32_t programs = 0;    // bits of the programs that name it
    uint32_t continuous = 0;  // bits of the programs for which it must be continuous
    uint64_t stamp = 0;       // the stamp of the PMT that named it last
    uint64_t continuous_stamp = 0;
    uint64_t seen_ns = 0;
  };
  // The progress of the current PAT version.
  struct Pat {
    bool is_there = false;
    uint16_t stream = 0;
    uint8_t version = 0;
    uint8_t last_section = 0;
    std::bitset<256> sections;  // the sections that have come
  };

  void read_pat(std::span<const std::byte> section, uint64_t now_ns) noexcept;
  void list_programs(const SectionHead& head, bool adds, uint64_t now_ns) noexcept;
  void drop_unlisted(const SectionHead& head, uint64_t now_ns) noexcept;
  void read_pmt(uint16_t pid, std::span<const std::byte> section, uint64_t now_ns) noexcept;
  void read_map(uint32_t program, const SectionHead& head, uint64_t now_ns) noexcept;
  uint32_t find(uint16_t number, uint16_t pid) const noexcept;
  uint32_t add_program(uint16_t number, uint16_t pid, uint64_t now_ns) noexcept;
  void remove_program(uint32_t index) noexcept;
  void name(uint32_t program, uint16_t pid, bool is_continuous, uint64_t now_ns) noexcept;
  void drop_unnamed(uint32_t program) noexcept;

  TsTableReport* report_;
  TsInspector* inspector_;
  bool has_begun_ = false;
  bool is_pat_missing_ = false;
  uint64_t looked_ns_ = 0;
  uint64_t pat_seen_ns_ = 0;
  uint32_t version_ = 0;  // counts versions of the PAT
  uint64_t stamp_ = 0;    // counts sections
  Pat pat_;
  uint32_t named_count_ = 0;
  SectionReader pat_reader_;
  Program programs_[kProgramsMax];
  Named named_[kPidsMax];
  PidEntry entries_[kPidCount];
};

}  // namespace bedplate::relay
