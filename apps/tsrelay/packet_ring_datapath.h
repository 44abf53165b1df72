// A ring of the packets that leave a stream, in order. Taps take packets from it, each at its own
// pace. A packet stays until every tap has passed it. If the ring is full and its oldest packet
// only waits for its due time, the packet leaves early. Otherwise the ring drops its oldest packet,
// and tells the taps that have not had it.
//
// Invariants, which is_valid() checks: 1. begin <= ready end <= end, and begin <= each tap <= end.
// 2. The number of packets is at most the number of slots.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "apps/tsrelay/packet_table_datapath.h"
#include "platform/trace_ring.h"

namespace bedplate::relay {

// Threads: the shard's.
class RingTap {
 public:
  virtual ~RingTap() = default;
  // Takes as many packets as it can. Returns how many packets it has passed.
  virtual uint32_t pump(uint64_t now_ns) noexcept = 0;
  // The ring drops the packet at next(), which the tap has not passed.
  virtual void missed(const Packet& packet) noexcept = 0;
  // Whether a drain need not wait for packets that it took. Loans to readers do not delay a drain.
  virtual bool is_idle() const noexcept { return true; }

  uint64_t next() const noexcept { return next_; }

 protected:
  friend class PacketRing;
  uint64_t next_ = 0;
};

// The stations of a media packet, for `bedplate trace`. FEC packets have none.
enum PacketStation : uint32_t {
  kArrived,
  kOrdered,  // it is in order: the packets before it have come, or are given up
  kDue,      // only if the stream is paced
  kTaken,    // all taps have passed it; not passed if a tap missed the packet
};
inline constexpr const char* kPacketStations = "arrived|ordered|due|taken";
inline constexpr const char* kPacketKinds = "received|recovered";  // recovered: by FEC

struct PacketTrace {
  TraceWriter writer;  // of the shard's ring
  uint16_t stream = 0;
};

class PacketRing {
 public:
  // Before the seal: it allocates. Requires: called once; the size of `indices` is a power of two;
  // `table` and `indices` outlive this.
  void create(PacketTable& table, std::span<uint32_t> indices, uint32_t tap_count_max,
              const PacketTrace& trace = {}) {
    BP_ASSERT(table_ == nullptr && std::has_single_bit(indices.size()));
    table_ = &table;
    indices_ = indices;
    trace_ = trace;
    taps_.reserve(tap_count_max);
  }
  // The tap gets the packets that come from now on. Requires: it is one of tap_count_max, and
  // outlives this.
  void add_tap(RingTap& tap) noexcept {
    BP_ASSERT(taps_.size() < taps_.capacity());
    tap.next_ = end_;
    taps_.insert(taps_.end(), &tap);
  }

  // Takes over the caller's reference. The packet is ready at its due_ns, but not before the
  // packets in front of it. If the ring is full, makes room first.
  void push(uint32_t index, uint64_t now_ns) noexcept {
    if (end_ - begin_ == indices_.size()) make_room(now_ns);
    BP_ASSERT(end_ - begin_ < indices_.size());
    indices_[end_ & (indices_.size() - 1)] = index;
    (*table_)[index].ordered_ns = now_ns;
    ++end_;
    held_peak_ = std::max(held_peak_, end_ - begin_);
    BP_DCHECK_SLOW(is_valid());
  }
  // Makes due packets ready, lets the taps take them, and releases packets that all taps have
  // passed. Returns the sum of the packets that each tap has passed.
  uint32_t pump(uint64_t now_ns) noexcept {
    BP_KEEPS_VALID(*this);
    while (ready_end_ < end_ && at(ready_end_).due_ns <= now_ns) ++ready_end_;
    return pump_taps(now_ns);
  }
  // Makes all packets in the ring ready, whatever their due time.
  void hurry() noexcept { ready_end_ = end_; }
  // The time at which pump() next makes a packet ready, or ~0 if no packet waits for its time.
  uint64_t due_ns() const noexcept {
    return ready_end_ < end_ ? at(ready_end_).due_ns : ~uint64_t{0};
  }

  uint64_t ready_end() const noexcept { return ready_end_; }
  uint64_t end() const noexcept { return end_; }
  // Whether all taps have passed all packets, and each is_idle().
  bool is_drained() const noexcept {
    return begin_ == end_ &&
           std::all_of(taps_.begin(), taps_.end(), [](const RingTap* t) { return t->is_idle(); });
  }
  uint64_t held_count() const noexcept { return end_ - begin_; }
  // The most packets that it held at once.
  uint64_t held_peak() const noexcept { return held_peak_; }
  uint32_t index_at(uint64_t number) const noexcept {
    BP_DCHECK(number >= begin_ && number < end_);
    return indices_[number & (indices_.size() - 1)];
  }
  Packet& at(uint64_t number) const noexcept { return (*table_)[index_at(number)]; }
  PacketTable& table() noexcept { return *table_; }

  bool is_valid() const noexcept {
    for (const RingTap* tap : taps_) {
      if (tap->next_ < begin_ || tap->next_ > end_) return false;
    }
    return begin_ <= ready_end_ && ready_end_ <= end_ && end_ - begin_ <= indices_.size();
  }

 private:
  uint32_t pump_taps(uint64_t now_ns) noexcept {
    uint32_t count = 0;
    for (RingTap* tap : taps_) count += tap->pump(now_ns);
    trim(now_ns, true);
    return count;
  }
  void tell_trace(const Packet& packet, uint64_t now_ns, bool is_taken) noexcept {
    if (packet.kind != PacketKind::kMedia) return;
    RequestTrace trace;
    trace.begin(packet.arrived_ns);
    trace.pass(kOrdered, packet.ordered_ns);
    // If the ring was full a packet left early: it was never due.
    if (packet.due_ns != 0 && packet.due_ns <= now_ns) trace.pass(kDue, packet.due_ns);
    if (is_taken) trace.pass(kTaken, now_ns);
    trace_.writer.write(trace, {packet.rtp.sequence, packet.byte_count, trace_.stream,
                                static_cast<uint8_t>(packet.socket == nullptr ? 1 : 0)});
  }
  void trim(uint64_t now_ns, bool are_taken) noexcept {
    uint64_t passed = ready_end_;
    for (const RingTap* tap : taps_) passed = std::min(passed, tap->next_);
    BP_DCHECK(passed >= begin_ && "a tap has gone back");
    for (; begin_ < passed; ++begin_) {
      tell_trace(at(begin_), now_ns, are_taken);
      table_->let_go(index_at(begin_));
    }
  }
  // Sends the oldest packet early if it waits only for its due time; otherwise drops it.
  void make_room(uint64_t now_ns) noexcept {
    if (ready_end_ == begin_) {
      ++ready_end_;
      pump_taps(now_ns);
      if (end_ - begin_ < indices_.size()) return;
    }
    const Packet& oldest = at(begin_);
    for (RingTap* tap : taps_) {
      if (tap->next_ > begin_) continue;
      tap->missed(oldest);
      tap->next_ = begin_ + 1;
    }
    trim(now_ns, false);
  }

  PacketTable* table_ = nullptr;
  std::span<uint32_t> indices_;
  PacketTrace trace_;
  uint64_t begin_ = 0;
  uint64_t ready_end_ = 0;
  uint64_t end_ = 0;
  uint64_t held_peak_ = 0;
  std::vector<RingTap*> taps_;
};

}  // namespace bedplate::relay
