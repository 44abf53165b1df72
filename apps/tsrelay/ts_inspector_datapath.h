// Monitors a transport stream according to ETSI TR 101 290: its first priority (sync, PAT, PMT,
// continuity, PIDs), CRCs and transport errors of the second, PCRs and the bit rate.
//
// It reads four bytes of each packet, and more of packets with an adaptation field, a PAT or a PMT.
// TsTables knows the programs and PIDs on air. The pace follows the clock of the first program of
// the PAT whose PCRs come. If they stop for a second, or no table names a clock, it follows another
// clock.
//
// A clock that no PMT names is forgotten after a second of silence, to make room for clocks on air.
// If a table begins or ceases to name a PID, the PID counts as new: its counter and clock begin
// anew.
//
// Invariants, which is_valid() checks: 1. There are at most kClocksMax clocks. 2. The PID of each
// clock has the clock's index. 3. Only good or only bad sync bytes are counted in a row, not both.
// 4. Its tables are valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/tsrelay/ts_packet_datapath.h"
#include "apps/tsrelay/ts_tables_datapath.h"

namespace bedplate::relay {

// Counts since the beginning; values that end with _ns are the maxima.
struct TsReport : TsTableReport {
  uint64_t packets = 0;
  uint64_t sync_losses = 0;          // 1.1
  uint64_t sync_byte_errors = 0;     // 1.2
  uint64_t continuity_errors = 0;    // 1.4
  uint64_t transport_errors = 0;     // 2.1
  uint64_t pcr_discontinuities = 0;  // 2.3b: more than 100 ms apart, unannounced
  uint64_t pcr_interval_max_ns = 0;  // 2.3a: at most 40 ms (ISO: 100 ms)
  // 2.4: the distance of a PCR from the one expected at the rate of the two before; at most 500 ns.
  uint64_t pcr_accuracy_max_ns = 0;
  uint64_t pcrs = 0;
  uint64_t bits_per_second = 0;  // from the last PCRs; 0: unknown, or PCRs have stopped
  uint64_t null_packets = 0;
};

// The first PCR in a datagram's payload, for the pacer.
struct TsClock {
  bool has_pcr = false;
  uint64_t pcr = 0;               // the first PCR of the PID that sets the pace
  uint32_t offset_bytes = 0;      // the offset of its packet in the payload
  bool is_discontinuous = false;  // announced, or another clock than before
};

class TsInspector {
 public:
  // PIDs with PCRs: one for each program, and a few that no PMT names.
  static constexpr uint32_t kClocksMax = TsTables::kProgramsMax + 8;

  TsInspector() noexcept = default;
  TsInspector(const TsInspector&) = delete;  // its tables refer to it

  // `now_ns`: the present monotonic time, which does not go back. Returns the clock for the pacer.
  // Ignores bytes after the last whole packet.
  TsClock inspect(std::span<const std::byte> payload, uint64_t now_ns) noexcept;
  // Counts missing tables and PIDs. Forgets silent clocks that no PMT names, and the bit rate if
  // PCRs have stopped. Called periodically; inspect() does it, too.
  void look_for_missing(uint64_t now_ns) noexcept;
  // Does not count a gap before the next packet as an error: continuity counters, PCR distances and
  // sections begin anew after it. Called when the sender's numbers begin anew.
  void forgive_gap() noexcept { ++gap_; }
  // Forgets the state of the stream: the next packets are from another sender. The counts continue.
  void forget() noexcept;

  // Called by its tables, which have begun or ceased to name this PID: it starts anew.
  void is_another(uint16_t pid) noexcept;
  // Called by its tables: a program has begun to use this PID for its clock.
  void is_another_clock(uint16_t pid) noexcept;

  const TsReport& report() const noexcept { return report_; }
  const TsTables& tables() const noexcept { return tables_; }
  // The PID whose PCRs set the pace; kNullPid: none yet.
  uint16_t pace_pid() const noexcept { return pace_pid_; }
  uint32_t clock_count() const noexcept { return clock_count_; }
  bool is_valid() const noexcept;

 private:
  static constexpr uint64_t kClockNsMax = 1'000'000'000;
  static constexpr uint64_t kLookNs = 100'000'000;
  static constexpr uint32_t kSyncLost = 2;   // bad sync bytes in a row
  static constexpr uint32_t kSyncFound = 5;  // good sync bytes in a row
  static constexpr uint8_t kNone = 0xFF;

  // One for each PID. Between resets, only entries of PIDs in use are touched.
  struct Pid {
    uint8_t counter = kNone;  // kNone: no packet has come
    bool is_repeated = false;
    uint8_t clock = kNone;
    uint16_t gap = 0;  // as of its last packet
  };
  struct Clock {
    uint16_t pid = 0;
    uint32_t gap = 0;
    uint8_t count = 0;  // of known PCRs: the last two at most
    uint64_t pcr = 0;
    uint64_t position = 0;  // in bytes of the stream
    uint64_t last_ticks = 0;
    uint64_t last_bytes = 0;
    uint64_t seen_ns = 0;
  };

  void check_sync(bool is_good) noexcept;
  void check_counter(const TsPacket& packet, Pid& pid) noexcept;
  Clock* clock_of(uint16_t pid, uint64_t now_ns) noexcept;
  void remove_clock(uint32_t index) noexcept;
  void note_pcr(const TsPacket& packet, uint64_t position, uint64_t now_ns) noexcept;
  void measure(Clock& clock, const TsPacket& packet, uint64_t position) noexcept;
  bool is_pace(uint16_t pid, uint64_t now_ns) noexcept;

  TsReport report_;
  uint32_t bad_syncs_ = 0;  // in a row
  uint32_t good_syncs_ = 0;
  bool is_in_sync_ = true;
  uint32_t gap_ = 0;
  uint64_t position_ = 0;
  uint64_t looked_ns_ = 0;
  uint64_t pcr_seen_ns_ = 0;
  uint16_t pace_pid_ = kNullPid;
  uint64_t pace_seen_ns_ = 0;
  uint32_t clock_count_ = 0;
  TsTables tables_{report_, *this};
  Clock clocks_[kClocksMax];
  Pid pids_[kPidCount];
};

}  // namespace bedplate::relay
