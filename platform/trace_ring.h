// Traces of requests: the times at which a request passes its stations, and a ring of the last
// requests of a shard.
//
// A request carries a RequestTrace from its first station to its last; then its record replaces the
// oldest one in the ring of the shard on which the request ends. A record is one cache line and
// lies in the counters file (apps/counters/counters_format.h), where `bedplate trace` reads it,
// even after a crash. A request that has not ended is in no ring. This code reads no clock: times
// come from the caller's loop (EventLoop::now_ns), or from one clock reading for a whole batch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "platform/assert.h"
#include "platform/cache_line.h"

namespace bedplate {

// Times are kept relative to the first station in steps of 64 ns, so that 32 bits last for 4.5
// minutes; longer times are kept as that maximum.
inline constexpr uint32_t kTraceStepLog2 = 6;
inline constexpr uint32_t kTraceStationMax = 8;  // the highest number; the first station is 0
inline constexpr uint32_t kTraceNotPassed = ~uint32_t{0};

// The layout in the file. `number` counts the ring's requests from 1 on; 0: the record is empty, or
// being written. A reader has a consistent record if the number is the same before and after its
// copy, and not 0.
struct alignas(kCacheLineBytes) TraceRecord {
  uint64_t number = 0;
  uint64_t begin_ns = 0;  // monotonic_ns(), at station 0
  uint64_t handle = 0;    // the client's identifier of the request
  uint32_t bytes = 0;
  uint16_t subject = 0;  // the object of the request: a volume, a stream
  uint8_t source = 0;    // the service
  uint8_t kind = 0;
  uint32_t passed[kTraceStationMax] = {};  // steps since begin_ns; [0] is station 1
};
static_assert(sizeof(TraceRecord) == 64);

// The trace that a request carries. Threads: the thread that has the request.
class RequestTrace {
 public:
  // The request is at station 0, and has passed no other.
  void begin(uint64_t now_ns) noexcept {
    begin_ns_ = now_ns;
    for (uint32_t& passed : passed_) passed = kTraceNotPassed;
  }
  // The request is at `station`, 1 to kTraceStationMax. Stations may be skipped; a station passed
  // twice keeps the later time. Times from other shards may be a loop round older than begin():
  // these count as 0.
  void pass(uint32_t station, uint64_t now_ns) noexcept {
    BP_DCHECK(station >= 1 && station <= kTraceStationMax);
    const uint64_t ns = now_ns > begin_ns_ ? now_ns - begin_ns_ : 0;
    passed_[station - 1] =
        static_cast<uint32_t>(std::min<uint64_t>(ns >> kTraceStepLog2, kTraceNotPassed - 1));
  }
  uint64_t begin_ns() const noexcept { return begin_ns_; }

 private:
  friend class TraceRing;

  uint64_t begin_ns_ = 0;
  uint32_t passed_[kTraceStationMax] = {};
};

// A request's other facts, beside its stations.
struct TraceSubject {
  uint64_t handle = 0;
  uint32_t bytes = 0;
  uint16_t subject = 0;
  uint8_t kind = 0;
};

// The writer's end of one ring. Threads: its shard's.
//
// Invariants, which is_valid() looks at, around each record: 1. The next index is the number of all
// requests modulo the ring's size. 2. The record before it has that number: nobody else writes
// here.
class TraceRing {
 public:
  // Call it once. Requires: `records` are zeroed, outlive this, and are at least one.
  void create(std::span<TraceRecord> records) noexcept {
    BP_ASSERT(!records.empty() && records_.empty());
    records_ = records;
  }
  bool is_there() const noexcept { return !records_.empty(); }

  // Writes one record over the oldest. Requires: is_there(). Cost: one cache line written, without
  // a locked instruction (about 3 ns).
  void write(uint8_t source, const RequestTrace& trace, const TraceSubject& subject) noexcept {
    BP_KEEPS_VALID(*this);
    TraceRecord& record = records_[next_];
    next_ = next_ + 1 == records_.size() ? 0 : next_ + 1;
    const std::atomic_ref<uint64_t> number(record.number);
    number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // the 0 comes before what follows
    record.begin_ns = trace.begin_ns_;
    record.handle = subject.handle;
    record.bytes = subject.bytes;
    record.subject = subject.subject;
    record.source = source;
    record.kind = subject.kind;
    std::copy(std::begin(trace.passed_), std::end(trace.passed_), record.passed);
    number.store(++number_, std::memory_order_release);  // pairs with TraceSnapshot
  }

  bool is_valid() const noexcept {
    if (records_.empty() || next_ != number_ % records_.size()) return false;
    return number_ == 0 || records_[(number_ - 1) % records_.size()].number == number_;
  }

 private:
  std::span<TraceRecord> records_;
  size_t next_ = 0;
  uint64_t number_ = 0;
};

// One service's access to a ring. Without a ring ([appliance] trace_requests = 0) it writes
// nothing.
class TraceWriter {
 public:
  TraceWriter() noexcept = default;
  TraceWriter(TraceRing* ring, uint8_t source) noexcept : ring_(ring), source_(source) {}
  // Records a request that has ended. Threads: the ring's shard's.
  void write(const RequestTrace& trace, const TraceSubject& subject) const noexcept {
    if (ring_ != nullptr) ring_->write(source_, trace, subject);
  }

 private:
  TraceRing* ring_ = nullptr;
  uint8_t source_ = 0;
};

}  // namespace bedplate
