// A simple model of a stream on air: programs begin, end, move and change at random. It sends its
// programs, tables first, and reports where an inspector's state differs from its own.
//
// Its packets have no faults except bad CRCs, which it counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "apps/tsrelay/ts_inspector_datapath.h"
#include "tests/apps/tsrelay/ts_mux.h"

namespace bedplate::relay {

// `Chance` has below(limit).
template <typename Chance>
class TsAir {
 public:
  static constexpr uint16_t kTablePids = 0x100;   // the first of kTablePidCount
  static constexpr uint16_t kStreamPids = 0x200;  // the first of kStreamPidCount
  static constexpr uint32_t kTablePidCount = 12;
  static constexpr uint32_t kStreamPidCount = 48;
  static constexpr uint32_t kProgramsMax = 12;
  static constexpr uint64_t kStepNs = 40'000'000;

  explicit TsAir(Chance& chance) : chance_(&chance) { change(); }

  std::vector<MadeProgram> programs;
  uint64_t now_ns = 1'000'000'000;
  uint16_t withheld = kNullPid;  // packets of this PID are not sent
  uint64_t broken_count = 0;

  // Makes a random change. The tables that are sent next announce it.
  void change() {
    const bool tells = chance_->below(8) != 0;  // else versions do not change
    const uint32_t what = chance_->below(8);
    if (programs.empty() || (what == 0 && programs.size() < kProgramsMax)) {
      programs.push_back(a_program());
      change_pat(tells);
    } else if (what == 1) {
      programs.erase(programs.begin() + chance_->below(size()));
      change_pat(tells);
    } else if (what == 2) {
      std::swap(programs[chance_->below(size())], programs[0]);
      change_pat(tells);
    } else if (what == 3) {
      programs[chance_->below(size())].pid = table_pid();
      change_pat(tells);
    } else if (what == 4) {  // another encoder, with versions of its own
      const size_t count = 1 + chance_->below(kProgramsMax);
      programs.clear();
      while (programs.size() < count) programs.push_back(a_program());
      pat_version_ = static_cast<uint8_t>(chance_->below(3));
      section_count_ = 1 + chance_->below(3);
    } else {
      MadeProgram& its = programs[chance_->below(size())];
      const MadeProgram other = a_program();
      if (what != 5) its.streams = other.streams;
      if (what != 6) its.clock_pid = other.clock_pid;
      its.version = static_cast<uint8_t>(its.version + (tells ? 1 : 0));
    }
  }

  // Sends the PAT, then the PMTs in any order, then a packet of each PID that must come.
  void send(TsInspector& to) {
    now_ns += kStepNs;
    give(to, mux_.table(kPatPid, other_pat(false)));
    if (chance_->below(10) == 0) {
      ++broken_count;
      give(to, mux_.table(kPatPid, other_pat(true)));
    }
    std::vector<uint8_t> order;
    for (uint32_t i = 0; i < section_count_; ++i) order.push_back(static_cast<uint8_t>(i));
    shuffle(order);
    for (const uint8_t section : order) give(to, mux_.table(kPatPid, pat(section)));
    std::vector<MadeProgram> maps = programs;
    shuffle(maps);
    for (const MadeProgram& program : maps) {
      if (chance_->below(10) == 0) {
        MadeProgram next = a_program();  // a future table, or that of another program
        const bool will_be = chance_->below(2) == 0;
        next.number = will_be ? program.number : 60'000;
        give(to, mux_.table(program.pid, made_pmt(next, !will_be)));
      }
      give(to, mux_.table(program.pid, made_pmt(program)));
    }
    const std::map<uint16_t, bool> wanted = named();
    for (uint16_t pid = kStreamPids; pid < kStreamPids + kStreamPidCount; ++pid) {
      const auto its = wanted.find(pid);
      if (its == wanted.end()) {
        mux_.jump(pid, static_cast<uint8_t>(chance_->below(16)));
        continue;
      }
      if (pid == withheld || (!its->second && chance_->below(30) != 0)) continue;
      give(to,
           mux_.plain(pid, is_clock(pid) ? now_ns / 1000 * 27 + pid * kPcrHz * 7 : TsMux::kNoPcr));
    }
  }

  // Returns a difference; nullptr: the inspector knows exactly the programs and PIDs on air.
  const char* differs(const TsInspector& inspector) const {
    const TsTables& tables = inspector.tables();
    const std::map<uint16_t, bool> wanted = named();
    if (inspector.report().programs != programs.size()) return "programs";
    if (tables.named_count() != wanted.size()) return "the number of PIDs";
    for (const auto& [pid, must_come] : wanted) {
      if (!tables.is_named(pid)) return "a PID that is named";
      if (tables.must_come(pid) != must_come) return "a PID that must come, or need not";
    }
    for (uint32_t i = 0; i < kTablePidCount; ++i) {
      const auto pid = static_cast<uint16_t>(kTablePids + i);
      const bool is_table = std::ranges::any_of(programs, [&](auto& p) { return p.pid == pid; });
      if (tables.is_table(pid) != is_table) return "a PID of a PMT";
    }
    for (const MadeProgram& program : programs) {
      if (program.clock_pid == kNullPid) continue;
      return inspector.pace_pid() == program.clock_pid ? nullptr : "the clock of the pace";
    }
    return nullptr;
  }

  // Returns the PIDs that PMTs name. The value: whether the PID must come all the time.
  std::map<uint16_t, bool> named() const {
    std::map<uint16_t, bool> all;
    for (const MadeProgram& program : programs) {
      if (program.clock_pid != kNullPid) all[program.clock_pid] = true;
      for (const MadeStream& stream : program.streams) {
        all[stream.pid] = all[stream.pid] || stream.type == 0x1B || stream.type == 0x0F;
      }
    }
    return all;
  }
  bool is_clock(uint16_t pid) const {
    return std::ranges::any_of(programs, [&](auto& p) { return p.clock_pid == pid; });
  }

 private:
  void change_pat(bool tells) {
    pat_version_ = static_cast<uint8_t>(pat_version_ + (tells ? 1 : 0));
  }
  uint32_t size() const { return static_cast<uint32_t>(programs.size()); }
  uint16_t table_pid() {
    return static_cast<uint16_t>(kTablePids + chance_->below(kTablePidCount));
  }
  uint16_t stream_pid() {
    return static_cast<uint16_t>(kStreamPids + chance_->below(kStreamPidCount));
  }
  MadeProgram a_program() {
    static constexpr uint8_t kTypes[] = {0x1B, 0x0F, 0x86, 0x06, 0x05};
    MadeProgram its;
    do {
      its.number = static_cast<uint16_t>(1 + chance_->below(40));
    } while (std::ranges::any_of(programs, [&](auto& p) { return p.number == its.number; }) &&
             ++tries_ % 64 != 0);
    while (std::ranges::any_of(programs, [&](auto& p) { return p.number == its.number; })) {
      ++its.number;
    }
    its.pid = table_pid();
    its.version = static_cast<uint8_t>(chance_->below(2));
    for (uint32_t i = chance_->below(5); i > 0; --i) {
      its.streams.push_back({kTypes[chance_->below(5)], stream_pid(), {}});
    }
    if (chance_->below(10) != 0) its.clock_pid = stream_pid();
    return its;
  }
  Bytes pat(uint8_t section) const {
    const size_t each = (programs.size() + section_count_ - 1) / section_count_;
    const size_t first = std::min(programs.size(), section * each);
    const size_t count = std::min(programs.size() - first, each);
    return made_pat({programs.data() + first, count},
                    {pat_version_, section, static_cast<uint8_t>(section_count_ - 1), true});
  }
  // Returns a PAT that does not count now: a future one, or one with a bad CRC.
  Bytes other_pat(bool is_broken) {
    const std::vector<MadeProgram> other = {a_program()};
    Bytes section = made_pat(
        other, {static_cast<uint8_t>(pat_version_ + (is_broken ? 0 : 1)), 0, 0, is_broken});
    if (is_broken) section[9] ^= std::byte{0x10};
    return section;
  }
  template <typename T>
  void shuffle(std::vector<T>& all) {
    for (size_t i = all.size(); i > 1; --i) {
      std::swap(all[i - 1], all[chance_->below(static_cast<uint32_t>(i))]);
    }
  }
  void give(TsInspector& to, const Bytes& packets) { to.inspect(packets, now_ns); }

  Chance* chance_;
  TsMux mux_;
  uint32_t tries_ = 0;
  uint8_t pat_version_ = 0;
  uint32_t section_count_ = 1;
};

}  // namespace bedplate::relay
