// Merges the packets of one or two legs into one ordered stream (SMPTE ST 2022-7; the window
// decides the class). It keeps the first packet of each number. Without a gap nothing waits. At a
// gap it waits until a packet held behind the gap has waited for window_ns, or until a packet comes
// that is window_packets or more beyond the gap's begin.
//
// If a packet's number is far from the present ones, or known with another timestamp, the packet is
// on probation until its successor comes on the same leg: two in a row mean that the sender has
// restarted, and numbers begin anew. For kOldNs, packets with old numbers that still come by the
// slower leg count as late.
//
// It knows packets only as the owner's item numbers, and never touches packet memory. SenderLock
// decides which sender's packets a leg takes (sender_lock_datapath.h).
//
// Invariants, which is_valid() checks: 1. Each packet held lies in [next, next + window_packets),
// in the slot of its number, and held_count_ counts them. 2. The next packet is never held: it
// would have been delivered. 3. There is a deadline exactly while packets are held: the earliest
// arrival among them plus window_ns. 4. A leg that has begun has received a packet, and its first
// number is not beyond its highest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/tsrelay/rtp_datapath.h"

namespace bedplate::relay {

enum class MergeDrop : uint8_t {
  kDuplicate,  // it already came: by a leg, or from FEC
  kLate,       // its number was given up, or is from before a restart
  kOutside,    // no successor has confirmed its number
};

enum class MergeVerdict : uint8_t {
  kTaken,      // delivered, or held
  kDuplicate,  // dropped: MergeDrop::kDuplicate
  kLate,       // dropped: MergeDrop::kLate
  kOutside,    // dropped, or on probation until its successor confirms its number
};

class MergeSink {
 public:
  virtual ~MergeSink() = default;
  // The next packet. `missing_count`: the number of packets given up directly before it.
  virtual void deliver(uint32_t item, uint32_t missing_count) noexcept = 0;
  // The item is dropped, and the owner has it back.
  virtual void drop(uint32_t item, MergeDrop cause) noexcept = 0;
  // The packets delivered from now on are numbered anew.
  virtual void restarted() noexcept = 0;
};

struct MergeOptions {
  uint64_t window_ns = 0;
  uint32_t window_packets = 1;  // 1 to kWindowMax
  MergeSink* sink = nullptr;
};

struct MergePacket {
  uint32_t item = 0;
  uint32_t leg = 0;  // kRecovered: FEC has recovered it, and no leg brought it
  uint16_t sequence = 0;
  uint32_t timestamp = 0;
  uint64_t now_ns = 0;
};

// One leg's counts since the beginning.
struct LegReport {
  uint64_t lost = 0;  // computed from its numbers; it shrinks when a packet comes late
  uint64_t reordered = 0;
};

class LegMerge {
 public:
  static constexpr uint32_t kLegsMax = 2;
  static constexpr uint32_t kRecovered = kLegsMax;
  static constexpr uint32_t kWindowMax = 8192;
  static constexpr uint64_t kNever = ~uint64_t{0};
  static constexpr uint64_t kOldNs = 2'000'000'000;

  struct Slot {
    uint64_t number = 0;    // 0: none; numbers begin above 65536
    uint64_t since_ns = 0;  // the earliest arrival among this packet and those held behind it
    uint32_t item = 0;
    uint32_t timestamp = 0;
    bool is_held = false;
  };
  // The number of slots for a window: a power of two, at least twice its packets, to recognise
  // packets already delivered.
  static uint64_t slot_count(uint32_t window_packets) noexcept;

  // `slots`: slot_count(window_packets) of them, zeroed, which outlive this. Requires: called once;
  // the sink outlives this.
  void create(const MergeOptions& options, std::span<Slot> slots) noexcept;

  // Takes the item: the sink gets it now or later.
  MergeVerdict insert(const MergePacket& packet) noexcept;
  // Gives up the missing packets whose time has passed.
  void expire(uint64_t now_ns) noexcept;
  // Delivers all packets held, with their gaps, and drops those on probation. Numbers begin anew
  // with the next packet: the sender is gone.
  void restart() noexcept;
  // The time at which expire() next has work, or kNever.
  uint64_t deadline_ns() const noexcept { return deadline_ns_; }

  // Without packets on probation.
  uint32_t held_count() const noexcept { return held_count_; }
  // The most packets of the window in use at once, from the first missing one to the last received
  // one; 1: all came in order.
  uint64_t span_peak() const noexcept { return span_peak_; }
  uint64_t lost_count() const noexcept { return lost_count_; }
  LegReport leg_report(uint32_t leg) const noexcept;
  bool is_valid() const noexcept;

 private:
  // A leg has lost the expected less the received packets (RFC 3550, appendix A.3).
  struct Leg {
    bool has_begun = false;
    uint64_t first = 0;
    uint64_t highest = 0;
    uint64_t received = 0;
    uint64_t lost_before = 0;
    uint64_t reordered = 0;
    bool is_on_probation = false;
    MergePacket probation;
  };

  Slot& slot_of(uint64_t number) noexcept { return slots_[number & (slots_.size() - 1)]; }
  void begin(uint16_t sequence) noexcept;
  void count(uint32_t leg, uint64_t number) noexcept;
  MergeVerdict put_on_probation(const MergePacket& packet) noexcept;
  MergeVerdict drop(uint32_t item, MergeDrop cause) noexcept;
  void end_probation(Leg& leg) noexcept;
  void accept(const MergePacket& packet, uint64_t number) noexcept;
  void miss_next() noexcept;
  void give_up() noexcept;
  void deliver_ready() noexcept;
  void flush() noexcept;

  MergeOptions options_;
  std::span<Slot> slots_;
  bool has_begun_ = false;
  uint64_t next_ = 0;
  uint64_t highest_ = 0;  // of all packets ever held
  uint32_t held_count_ = 0;
  uint64_t span_peak_ = 0;
  uint32_t missing_count_ = 0;  // given up since the last delivery
  uint64_t deadline_ns_ = kNever;
  uint64_t lost_count_ = 0;
  uint16_t old_next_ = 0;  // the value of next_ before the restart
  uint64_t old_until_ns_ = 0;
  Leg legs_[kLegsMax];
};

}  // namespace bedplate::relay
