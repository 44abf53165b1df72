// Requests and the stations that they pass, and the ring that keeps the last requests of a shard.
//
// A request carries a RequestTrace from its first station to its last; then its record goes into
// the ring of the shard on which it ends, over the oldest. A record is one cache line and lies in
// the counters file (apps/counters/counters_format.h), where `bedplate trace` reads it, even after
// a crash. A request that has not ended is in no ring. Nothing here looks at a clock: the time is
// that of the caller's loop (EventLoop::now_ns), or one look for a whole batch.
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

// Times behind the first station are kept in steps of 64 ns, so that 32 bits last for 4.5 minutes;
// a longer time is kept as that.
inline constexpr uint32_t kTraceStepLog2 = 6;
inline constexpr uint32_t kTraceStationMax = 8;  // the first is number 0
inline constexpr uint32_t kTraceNotPassed = ~uint32_t{0};

// As it lies in the file. `number`: of the ring's requests, from 1 on; 0: none, or one that is
// being written. A reader has one whole record if the number is the same before and after.
struct alignas(kCacheLineBytes) TraceRecord {
  uint64_t number = 0;
  uint64_t begin_ns = 0;  // monotonic_ns(), at station 0
  uint64_t handle = 0;    // what the client calls the request
  uint32_t bytes = 0;
  uint16_t subject = 0;  // what it is about: a volume, a stream
  uint8_t source = 0;    // the service
  uint8_t kind = 0;
  uint32_t passed[kTraceStationMax] = {};  // steps from begin_ns; [0] is station 1
};
static_assert(sizeof(TraceRecord) == 64);

// The trace that a request carries. Threads: the one that has the request.
class RequestTrace {
 public:
  // It is at station 0, and has passed no other.
  void begin(uint64_t now_ns) noexcept {
    begin_ns_ = now_ns;
    for (uint32_t& passed : passed_) passed = kTraceNotPassed;
  }
  // It is at `station`, 1 to kTraceStationMax. Stations may be left out; one that is passed twice
  // has the later time. Times of other shards may be a round older than begin(): that is 0.
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
// Invariants, which is_valid() looks at, around each record: 1. The next record is that which the
// number of all says. 2. The one before it has that number: nobody else writes here.
class TraceRing {
 public:
  // `records`, zeroed, outlive this. Requires: there is one at least.
  void create(std::span<TraceRecord> records) noexcept {
    BP_ASSERT(!records.empty() && records_.empty());
    records_ = records;
  }
  bool is_there() const noexcept { return !records_.empty(); }

  // Cost: one cache line written, without a locked instruction (about 3 ns).
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

// One service's way into a ring. Without a ring ([appliance] trace_requests = 0) it writes nothing.
class TraceWriter {
 public:
  TraceWriter() noexcept = default;
  TraceWriter(TraceRing* ring, uint8_t source) noexcept : ring_(ring), source_(source) {}
  // The request has ended. Threads: the ring's shard's.
  void write(const RequestTrace& trace, const TraceSubject& subject) const noexcept {
    if (ring_ != nullptr) ring_->write(source_, trace, subject);
  }

 private:
  TraceRing* ring_ = nullptr;
  uint8_t source_ = 0;
};

}  // namespace bedplate
