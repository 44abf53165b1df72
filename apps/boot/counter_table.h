// A description of counters: what each is called, what it counts, and where it lies.
//
// A function `describe(CounterTable&, Counters&)` beside a struct of Counters describes it:
//
//     struct CacheCounters {
//       Counter hits;
//       Counter bytes;
//     };
//     void describe(CounterTable& table, CacheCounters& counters) {
//       table.counter("hits", counters.hits, "requests", "Gets that found a value.");
//       table.gauge("bytes", counters.bytes, "bytes", "What values take now.");
//     }
//
// The description goes into the counters file beside the values, so that any reader can print them:
// `bedplate stats`, of this build or another, knows no service. Each counter is written by one
// thread. Threads: before the seal (it allocates).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/histogram.h"

namespace bedplate {

// kCounter: only grows. kGauge: a level, which goes up and down. kHistogram: of latencies and the
// like (platform/histogram.h).
enum class CounterKind : uint32_t { kCounter, kGauge, kHistogram };

// How much of its struct a counter takes.
constexpr size_t bytes_of(CounterKind kind) noexcept {
  return kind == CounterKind::kHistogram ? sizeof(Histogram) : sizeof(Counter);
}

struct CounterDescription {
  std::string name;  // of a-z, 0-9 and _
  CounterKind kind = CounterKind::kCounter;
  std::string unit;  // what there are so many of: "requests", "bytes", "ns"
  std::string help;  // one sentence
  uint32_t offset = 0;  // of its Counter, or Histogram, in the struct
};

class CounterTable {
 public:
  // `base`: the struct that is described.
  explicit CounterTable(const void* base) noexcept
      : base_(static_cast<const std::byte*>(base)) {}

  void counter(const char* name, const Counter& counter, const char* unit, const char* help) {
    add(name, CounterKind::kCounter, counter, unit, help);
  }
  void gauge(const char* name, const Counter& counter, const char* unit, const char* help) {
    add(name, CounterKind::kGauge, counter, unit, help);
  }

  void histogram(const char* name, const Histogram& histogram, const char* unit,
                 const char* help) {
    add(name, CounterKind::kHistogram, histogram, unit, help);
  }

  std::vector<CounterDescription> take() { return std::move(counters_); }

 private:
  template <typename Kind>
  void add(const char* name, CounterKind kind, const Kind& counter, const char* unit,
           const char* help) {
    const auto offset = reinterpret_cast<const std::byte*>(&counter) - base_;
    counters_.push_back({name, kind, unit, help, static_cast<uint32_t>(offset)});
  }

  const std::byte* base_;
  std::vector<CounterDescription> counters_;
};

// A struct of counters as a service has planned it.
struct CounterSet {
  std::string owner;     // the service
  std::string name;      // unique in it
  std::string instance;  // what it is the counters of, where there are several: a volume, a stream
  uint32_t bytes = 0;    // of the struct
  std::vector<CounterDescription> counters;
};

// Describes a struct of its own.
template <typename Counters>
std::vector<CounterDescription> described_counters() {
  static_assert(alignof(Counters) <= kCacheLineBytes);  // on one they lie in the file
  Counters sample;
  CounterTable table(&sample);
  describe(table, sample);
  return table.take();
}

}  // namespace bedplate
