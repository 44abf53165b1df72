// Measures the cost of tracing a request: its begin, each station, and its record in a shard's
// ring.
//
// It cycles through as many requests as a busy connection has in flight, and the ring has as many
// records as a shard keeps by default (256 KiB, more than the L1 cache). The clock is read once per
// batch, as services do; the cost of a read is a separate line. One run prints one round: lines of
// a name and nanoseconds.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "platform/clock.h"
#include "platform/trace_ring.h"

using namespace bedplate;

namespace {

constexpr uint32_t kRequestCount = 128;
constexpr uint32_t kRecordCount = 4096;
constexpr uint32_t kStationCount = 6;  // like a read of blockd
constexpr uint32_t kBatchCount = 4096;
constexpr int kPassCount = 9;

enum class Work { kNothing, kBegin, kStations, kAll };

RequestTrace traces[kRequestCount];
std::vector<TraceRecord> records(kRecordCount);
TraceRing ring;

// Makes the compiler forget the memory behind the pointer.
void touch(void* memory) { asm volatile("" : : "r"(memory) : "memory"); }

// This thread's processor time, without other programs on the machine.
uint64_t processor_ns() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

template <Work kWork>
void run_batch(const TraceWriter& writer, uint64_t now_ns) {
  for (uint32_t i = 0; i < kRequestCount; ++i) {
    RequestTrace& trace = traces[i];
    touch(&trace);
    if (kWork >= Work::kBegin) trace.begin(now_ns);
    touch(&trace);
    for (uint32_t station = 1; kWork >= Work::kStations && station <= kStationCount; ++station) {
      touch(&now_ns);  // each station gets its own time
      trace.pass(station, now_ns);
      touch(&trace);
    }
    if (kWork >= Work::kAll) writer.write(trace, {i, 4096, 0, 1});
  }
}

// The best pass, per request.
template <Work kWork>
double time_ns(const TraceWriter& writer) {
  uint64_t best_ns = ~uint64_t{0};
  for (int pass = 0; pass < kPassCount; ++pass) {
    const uint64_t begin_ns = processor_ns();
    for (uint32_t batch = 0; batch < kBatchCount; ++batch) run_batch<kWork>(writer, batch);
    best_ns = std::min(best_ns, processor_ns() - begin_ns);
  }
  return static_cast<double>(best_ns) / (kBatchCount * kRequestCount);
}

double time_look_ns() {
  constexpr uint32_t kLookCount = 1 << 20;
  uint64_t best_ns = ~uint64_t{0};
  for (int pass = 0; pass < kPassCount; ++pass) {
    const uint64_t begin_ns = processor_ns();
    for (uint32_t i = 0; i < kLookCount; ++i) {
      uint64_t now_ns = monotonic_ns();
      touch(&now_ns);
    }
    best_ns = std::min(best_ns, processor_ns() - begin_ns);
  }
  return static_cast<double>(best_ns) / kLookCount;
}

}  // namespace

int main() {
  ring.create(records);
  const TraceWriter writer(&ring, 0);
  const double nothing_ns = time_ns<Work::kNothing>(writer);
  const double begin_ns = time_ns<Work::kBegin>(writer);
  const double stations_ns = time_ns<Work::kStations>(writer);
  const double all_ns = time_ns<Work::kAll>(writer);
  std::printf("begin %.3f\nstation %.3f\nrecord %.3f\nlook %.3f\n", begin_ns - nothing_ns,
              (stations_ns - begin_ns) / kStationCount, all_ns - stations_ns, time_look_ns());
  return 0;
}
