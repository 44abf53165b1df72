// Describes counters: the name, the meaning and the location of each.
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
// The description lies in the counters file beside the values, so any reader can print them:
// `bedplate stats`, of this build or another, knows no service. One thread writes each counter.
// Describe counters before the seal: a CounterTable allocates. Threads: one for each table.
//
// A counter may measure a key of the configuration, for `bedplate plan --explain`: how much of the
// key's value was used at most, or how often it was too little.
//
//     table.gauge("bytes_peak", counters.bytes_peak, "bytes", "What values took at most.")
//         .peak_of("bytes", "Values are forgotten sooner.");
//     table.counter("forgotten", counters.forgotten, "values", "...").refusals_of("bytes");
//
// A counter may also raise an alert, in `top`, the status page, /metrics and `doctor` alike
// (counter_alerts.h): from some value on, as it grows, or by another rule of CounterAlert.
//
//     table.gauge("silent_ns", counters.silent_ns, "ns", "...")
//         .alert_from(5 * kNsPerSecond, "it has answered nothing for {silent_ns}");
//
// A few counters of a set show at a glance what it does now: the status page makes a table of these
// counters for every service (docs/counters.md).
//
//     table.counter("gets", counters.gets, "requests", "...").at_a_glance("requests");
//     table.counter("sets", counters.sets, "requests", "...").at_a_glance("requests");
//
// A counter of losses, drops or refusals either raises an alert, with cause and cure, or says why
// it raises none (no_alert). tells_of_trouble() (counter_alerts.h) recognises such a counter by
// words in its name or its help.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/cache_line.h"
#include "platform/counter.h"
#include "platform/histogram.h"
#include "platform/shared_text.h"

namespace bedplate {

// kCounter: only grows. kGauge: a value that goes up and down; kNoValue if there is none.
// kHistogram: of latencies and the like (platform/histogram.h). kState: one of several words.
// kFlags: any of several words. kText: a short text, such as the name of a client.
enum class CounterKind : uint32_t { kCounter, kGauge, kHistogram, kState, kFlags, kText };

// The name of the kind in the counters file.
constexpr const char* to_text(CounterKind kind) noexcept {
  constexpr const char* kTexts[] = {"counter", "gauge", "histogram", "state", "flags", "text"};
  return kTexts[static_cast<size_t>(kind)];
}

// The value of a gauge that has no value now, or whose value is unknown.
inline constexpr uint64_t kNoValue = ~uint64_t{0};

// The bytes that a counter takes in its struct.
constexpr size_t bytes_of(CounterKind kind) noexcept {
  if (kind == CounterKind::kText) return sizeof(SharedText);
  return kind == CounterKind::kHistogram ? sizeof(Histogram) : sizeof(Counter);
}

// The key that a counter measures. A service names a key of its own table as "bytes", and a key of
// a table in that table as "tenant.bytes"; the runtime names a key with its table: "group.loans".
// If a table may occur several times, the counter measures the table that has the set's instance as
// its name (a text that the description calls unique()), or the tables that CounterSet::measured
// names.
struct KeyMeasure {
  enum class Kind { kNone, kPeak, kRefusals };
  Kind kind = Kind::kNone;
  std::string key;
  std::string risk;      // of a peak: the consequence of a smaller value; a sentence
  std::string capacity;  // of a peak: a gauge of the same set; the key is a part of it
};

// The rule by which a counter raises an alert, and the text of the alert: a sentence without its
// final point, in which {NAME} stands for the counter or label NAME of the same set.
struct CounterAlert {
  enum class Rule {
    kNone,
    kFrom,    // a gauge: it is `limit` or more, and not kNoValue
    kBelow,   // a gauge: it is less than `limit` hundredths of the gauge `of`
    kUnless,  // a state: for some seconds it has not been the word number `limit`
    kGrows,   // a counter: it grew in the last minute
    kStands,  // a counter: for some seconds it did not grow, and the gauge `of` was 0
  };
  Rule rule = Rule::kNone;
  uint64_t limit = 0;
  std::string of = {};
  std::string says = {};      // 1 to 159 bytes
  std::string why_none = {};  // of kNone: why losses, drops or refusals raise no alert
};

struct CounterDescription {
  std::string name;  // 1 to 47 bytes of a-z, 0-9 and _
  CounterKind kind = CounterKind::kCounter;
  std::string unit;     // of the value: "requests", "bytes", "ns"; 1 to 15 bytes
  std::string help;     // one sentence; 1 to 159 bytes
  uint32_t offset = 0;  // of its Counter, Histogram or SharedText, in the struct
  // The words of a kState for 0, 1, ..., or of kFlags for bit 0, 1, ...: "stopped|open"; 159 bytes
  // at most.
  std::string words = {};
  KeyMeasure measure = {};
  CounterAlert alert = {};
  // The heading of its column at a glance: 15 bytes at most, without quotes or backslashes; empty:
  // it has none.
  std::string column = {};

  // Shows the counter at a glance, in the column `heading`: a counter as its rate per second, a
  // histogram as the p99 of the last seconds, a gauge or a state as it is. Counters of a set that
  // share a column have the same kind and unit, and are combined. Not for texts or flags.
  CounterDescription& at_a_glance(const char* heading) {
    column = heading;
    return *this;
  }

  // The counter is the peak use of `key`. With `capacity`, a gauge of the same set, the counter is
  // the peak use of that capacity; `key`, or its default, is a part of it.
  void peak_of(const char* key, const char* risk, const char* capacity = "") {
    measure = {KeyMeasure::Kind::kPeak, key, risk, capacity};
  }
  // It counts requests or items refused or lost because the value of `key` is too small.
  CounterDescription& refusals_of(const char* key) {
    measure = {KeyMeasure::Kind::kRefusals, key, "", ""};
    return *this;
  }

  // Raises an alert by one rule of CounterAlert.
  void alert_from(uint64_t limit, const char* says) {
    alert = {CounterAlert::Rule::kFrom, limit, "", says};
  }
  void alert_below(uint64_t hundredths, const char* of, const char* says) {
    alert = {CounterAlert::Rule::kBelow, hundredths, of, says};
  }
  void alert_unless(uint64_t word, const char* says) {
    alert = {CounterAlert::Rule::kUnless, word, "", says};
  }
  void alert_as_it_grows(const char* says) { alert = {CounterAlert::Rule::kGrows, 0, "", says}; }
  void alert_as_it_stands(const char* unless, const char* says) {
    alert = {CounterAlert::Rule::kStands, 0, unless, says};
  }
  // Its name or its help tells of trouble, but it raises no alert; `why` is the reason.
  void no_alert(const char* why) { alert = {CounterAlert::Rule::kNone, 0, "", "", why}; }
};

// Each function adds one counter and copies its texts; CounterDescription gives their limits, and
// ServicePlan::counters checks them. Use the returned reference in the same statement: the next
// call may move the description.
class CounterTable {
 public:
  // `base`: the described struct. It has all added counters: their offsets count from here.
  explicit CounterTable(const void* base) noexcept : base_(static_cast<const std::byte*>(base)) {}

  CounterDescription& counter(const char* name, const Counter& counter, const char* unit,
                              const char* help) {
    return add(name, CounterKind::kCounter, counter, unit, help);
  }
  CounterDescription& gauge(const char* name, const Counter& counter, const char* unit,
                            const char* help) {
    return add(name, CounterKind::kGauge, counter, unit, help);
  }

  CounterDescription& histogram(const char* name, const Histogram& histogram, const char* unit,
                                const char* help) {
    return add(name, CounterKind::kHistogram, histogram, unit, help);
  }

  // The value is the index of a word of `words`: "waiting|connected".
  CounterDescription& state(const char* name, const Counter& counter, const char* words,
                            const char* help) {
    return add(name, CounterKind::kState, counter, "state", help, words);
  }
  // Each bit stands for a word of `words`: bit 0 for the first.
  void flags(const char* name, const Counter& counter, const char* words, const char* help) {
    add(name, CounterKind::kFlags, counter, "flags", help, words);
  }
  // A gauge that is 0 or 1.
  CounterDescription& boolean(const char* name, const Counter& counter, const char* help) {
    return add(name, CounterKind::kGauge, counter, "boolean", help);
  }
  void text(const char* name, const SharedText& text, const char* help) {
    add(name, CounterKind::kText, text, "text", help);
  }

  // Returns all added counters; the table is empty afterwards.
  std::vector<CounterDescription> take() { return std::move(counters_); }

 private:
  template <typename Kind>
  CounterDescription& add(const char* name, CounterKind kind, const Kind& counter, const char* unit,
                          const char* help, const char* words = "") {
    const auto offset = reinterpret_cast<const std::byte*>(&counter) - base_;
    return counters_.emplace_back(
        CounterDescription{name, kind, unit, help, static_cast<uint32_t>(offset), words});
  }

  const std::byte* base_;
  std::vector<CounterDescription> counters_;
};

// The counters of a struct. Copies share the list: an appliance has one set for each file, stream
// and output, and thousands of these have equal descriptions.
class CounterDescriptions {
 public:
  CounterDescriptions() noexcept = default;
  CounterDescriptions(std::vector<CounterDescription> all)  // NOLINT: a list converts
      : all_(std::make_shared<std::vector<CounterDescription>>(std::move(all))) {}
  CounterDescriptions(std::initializer_list<CounterDescription> all)
      : CounterDescriptions(std::vector<CounterDescription>(all)) {}

  const CounterDescription* begin() const noexcept { return data(); }
  const CounterDescription* end() const noexcept { return data() + size(); }
  const CounterDescription* data() const noexcept {
    return all_ == nullptr ? nullptr : all_->data();
  }
  size_t size() const noexcept { return all_ == nullptr ? 0 : all_->size(); }
  bool empty() const noexcept { return size() == 0; }
  const CounterDescription& operator[](size_t index) const noexcept { return (*all_)[index]; }
  // Whether both share one list; equal lists may be separate.
  bool is_shared_with(const CounterDescriptions& other) const noexcept {
    return all_ == other.all_;
  }

  // Adds to this copy alone, which stops sharing its list.
  void push_back(CounterDescription one) {
    std::vector<CounterDescription> all(begin(), end());
    all.push_back(std::move(one));
    *this = std::move(all);
  }

 private:
  std::shared_ptr<const std::vector<CounterDescription>> all_;
};

// A text fact of a set; it may be set later (CountersFile::set_label).
struct CounterLabel {
  std::string name;        // 31 bytes at most
  std::string value = {};  // 159
};

// kOfShard: of one shard of a service that has such a set on several; its instance is the shard's
// name. kSum: their sum, without an instance; the runtime makes it (apps/counters/counter_sums.h).
enum class CounterSetRole : uint32_t { kAlone, kOfShard, kSum };

// A struct of counters, as a service or the runtime plans it.
struct CounterSet {
  std::string owner;     // the service; empty: the runtime
  std::string name;      // 63 bytes at most; unique for its owner, together with `instance`
  std::string instance;  // the counted thing, if there are several: a volume; 63 bytes at most
  uint32_t bytes = 0;    // of the struct
  CounterDescriptions counters;
  std::vector<CounterLabel> labels = {};
  bool is_spare = false;  // for an instance that is not known yet (CountersFile::take_spare)
  // The names of the tables whose keys the set measures, if its instance is not one of these
  // tables: a queue of a drive measures the keys of all volumes on it. Not in the file.
  std::vector<std::string> measured = {};
  CounterSetRole role = CounterSetRole::kAlone;
};

// The descriptions that all sets of type Counters share; made once in a program, at the first call.
template <typename Counters>
CounterDescriptions described_counters() {
  static_assert(alignof(Counters) <= kCacheLineBytes);  // sets lie in the file at cache lines
  static const CounterDescriptions described = [] {
    Counters sample;
    CounterTable table(&sample);
    describe(table, sample);
    return CounterDescriptions(table.take());
  }();
  return described;
}

}  // namespace bedplate
