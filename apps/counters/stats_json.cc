#include "apps/counters/stats_json.h"

#include <algorithm>
#include <array>
#include <compare>
#include <optional>

#include "apps/counters/counter_alerts.h"
#include "pinned_pool/pool_map.h"
#include "platform/assert.h"
#include "platform/histogram.h"
#include "platform/text_writer.h"

namespace bedplate {
namespace {

// The keys that lead to a set.
struct Path {
  std::array<std::string_view, 4> keys;
  uint32_t count = 0;

  void add(std::string_view key) noexcept { keys[count++] = key; }
  std::span<const std::string_view> all() const noexcept { return {keys.data(), count}; }
  // A set comes before the sets below it.
  std::weak_ordering operator<=>(const Path& other) const noexcept {
    return std::lexicographical_compare_three_way(all().begin(), all().end(), other.all().begin(),
                                                  other.all().end());
  }
};

// All sets of a service that have no instance share one path: the service's.
Path path_of(const CountersView& counters, uint32_t index) noexcept {
  const CounterSetRecord& set = counters.set(index);
  const std::string_view owner = CountersView::text(set.owner.text);
  const std::string_view instance = CountersView::text(set.instance.text);
  Path path;
  if (!owner.empty()) {
    path.add("services");
    path.add(owner);
  }
  if (owner.empty() || !instance.empty()) path.add(CountersView::text(set.name.text));
  if (!instance.empty()) path.add(instance);
  return path;
}

std::optional<uint64_t> value_of(const CountersView& counters, const CounterSetRecord& set,
                                 std::string_view name) noexcept {
  for (uint32_t i = 0; i < set.count; ++i) {
    const CounterRecord& counter = counters.counter(set, i);
    if (CountersView::text(counter.name) == name) return counters.values(set, counter)[0].read();
  }
  return {};
}

// The pool map in the counters, by their names; without segments if counters are missing.
PoolMap map_of(const CountersView& counters) noexcept {
  PoolMap map;
  for (uint32_t i = 0; i < counters.set_count(); ++i) {
    const CounterSetRecord& set = counters.set(i);
    const bool is_segment = CountersView::text(set.owner.text).empty() &&
                            CountersView::text(set.name.text) == "segment";
    if (!is_segment || !counters.is_there(i)) continue;
    const auto read = [&](std::string_view name) { return value_of(counters, set, name); };
    const auto address = read("address"), bytes = read("bytes"), page_bytes = read("page_bytes");
    const auto device = read("device"), inode = read("inode");
    if (!address || !bytes || !page_bytes || !device || !inode ||
        map.segment_count == kSegmentCountMax) {
      return {};
    }
    PoolMapSegment& segment = map.segments[map.segment_count++];
    segment.owner = CountersView::text(set.instance.text);
    segment.address = *address;
    segment.bytes = *bytes;
    segment.page_bytes = *page_bytes;
    segment.device = *device;
    segment.inode = *inode;
    segment.is_locked = read("locked").value_or(0);
    segment.is_writable = read("writable").value_or(1);
    segment.has_write_seal = read("write_seal").value_or(0);
  }
  map.is_sealed = 1;
  return map;
}

AuditReport no_audit(std::string_view why) noexcept {
  AuditReport report;
  why.copy(report.text, sizeof report.text - 1);
  return report;
}

}  // namespace

bool write_known_value(const SeenCounter& counter, JsonText* json) noexcept {
  char text[SeenCounter::kWordsBytesMax];
  TextWriter words(text);
  if (counter.is_histogram()) {
    json->begin_object().key("count").number(Histogram::count_of(counter.values));
    for (const Percentile& each : kPercentiles) {
      json->key(each.key).number(Histogram::percentile_of(counter.values, each.share));
    }
    json->end_object();
  } else if (counter.write_words(&words)) {
    json->text({text, words.bytes()});
  } else if (!counter.is_number()) {
    return false;
  } else if (const uint64_t value = counter.read();
             counter.is(CounterKind::kGauge) && value == kNoValue) {
    json->null();
  } else if (counter.unit == "boolean" && value <= 1) {
    json->boolean(value == 1);
  } else {
    json->number(value);
  }
  return true;
}

AuditReport audit_of(const CountersView& counters, bool is_running) noexcept {
  if (!is_running) return no_audit("the appliance is not running: it crashed or was killed");
  const PoolMap map = map_of(counters);
  if (map.segment_count == 0) {
    return no_audit("the file does not describe the pool's segments");
  }
  auto report = audit_maps(map, counters.pid());
  if (report.ok()) return report.take();
  AuditReport failed;
  TextWriter(failed.text).text(report.error().doing).text(": ").text(report.error().answer);
  failed.text[sizeof failed.text - 1] = '\0';
  return failed;
}

StatsJson::StatsJson(CountersView counters, const AuditReport& audit, const Options& options,
                     std::span<uint32_t> order) noexcept
    : counters_(counters),
      audit_(audit),
      options_(options),
      order_(order),
      json_({}, options.layout) {
  BP_ASSERT(!order.empty());
}

size_t StatsJson::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  json_.go_on(to);
  while (cursor_.stage != Stage::kEnd) {
    Cursor after = cursor_;
    JsonText json = json_;
    step(&after, &json);
    if (json.is_full()) {
      BP_ASSERT(json_.bytes() > 0);  // an indivisible part fits
      break;
    }
    cursor_ = after;
    json_ = json;
  }
  return json_.bytes();
}

void StatsJson::step(Cursor* cursor, JsonText* json) const noexcept {
  switch (cursor->stage) {
    case Stage::kHead:
      write_head(json);
      cursor->stage = Stage::kCrash;
      return;
    case Stage::kCrash: return write_crash(cursor, json);
    case Stage::kAlerts:
      if (cursor->index < counters_.alert_count()) return write_alert(cursor->index++, json);
      json->end_array();
      cursor->stage = Stage::kOrder;
      return;
    case Stage::kOrder: return find_order(cursor);
    case Stage::kNextSet: return next_set(cursor, json);
    case Stage::kLabels: {
      const CounterSetRecord& set = counters_.set(cursor->set);
      if (cursor->index < set.label_count) {
        const CounterLabelRecord& label = counters_.label(set, cursor->index++);
        json->key(CountersView::text(label.name)).text(CountersView::text(label.value));
        return;
      }
      cursor->index = 0;
      cursor->stage = Stage::kCounters;
      return;
    }
    case Stage::kCounters: return write_counter(cursor, json);
    case Stage::kValues: return write_values(cursor, json);
    case Stage::kEnd: break;
  }
}

void StatsJson::write_head(JsonText* json) const noexcept {
  json->begin_object().key("name").text(counters_.appliance()).key("pid");
  json->number(static_cast<uint64_t>(std::max(counters_.pid(), 0)));
  json->key("running").boolean(options_.is_running).key("audit").text(audit_.text);
}

// A line for each step: all lines together need not fit into a piece.
void StatsJson::write_crash(Cursor* cursor, JsonText* json) const noexcept {
  const SeenCrash* crash = options_.crash;
  if (crash != nullptr && cursor->index == 0) {
    json->key("crash").begin_object().key("realtime_ns").number(crash->crashed_ns);
    json->key("lines").begin_array();
  }
  if (crash != nullptr && cursor->index < crash->lines.size()) {
    json->text(crash->lines[cursor->index++]);
    return;
  }
  if (crash != nullptr) json->end_array().end_object();
  json->key("signs").begin_array();
  cursor->index = 0;
  cursor->stage = Stage::kAlerts;
}

void StatsJson::write_alert(uint32_t index, JsonText* json) const noexcept {
  if (!is_raised(counters_, index)) return;
  const CounterAlertRecord& alert = counters_.alert(index);
  const CounterRecord& counter = counters_.counter(counters_.set(alert.set), alert.counter);
  char room[kAlertTextBytesMax];
  TextWriter of(room);
  write_alert_subject(counters_, index, &of);
  json->begin_object().key("of").text({room, of.bytes()});
  json->key("counter").text(CountersView::text(counter.name));
  TextWriter says(room);
  write_alert_text(counters_, index, &says);
  json->key("says").text({room, says.bytes()}).end_object();
}

// Finds the sets that come next, as many as `order_` has space for. It writes no text, so a part
// that did not fit does not repeat it.
void StatsJson::find_order(Cursor* cursor) const noexcept {
  const auto is_before = [this](uint32_t a, uint32_t b) {
    const auto order = path_of(counters_, a) <=> path_of(counters_, b);
    return order < 0 || (order == 0 && a < b);
  };
  uint32_t count = 0;
  for (uint32_t i = 0; i < counters_.set_count(); ++i) {
    if (!counters_.is_there(i)) continue;
    if (cursor->is_in_set && !is_before(cursor->set, i)) continue;
    if (count < order_.size()) {
      order_[count++] = i;
      if (count == order_.size()) std::make_heap(order_.begin(), order_.end(), is_before);
    } else if (is_before(i, order_[0])) {  // before the last of those found
      std::pop_heap(order_.begin(), order_.end(), is_before);
      order_.back() = i;
      std::push_heap(order_.begin(), order_.end(), is_before);
    }
  }
  std::sort(order_.begin(), order_.begin() + count, is_before);
  cursor->look_count += counters_.set_count();
  cursor->order_count = count;
  cursor->order_at = 0;
  cursor->stage = Stage::kNextSet;
}

// Goes to the set with the next path, and closes and opens the objects in between: sets of one
// object are adjacent.
void StatsJson::next_set(Cursor* cursor, JsonText* json) const noexcept {
  const bool has_next = cursor->order_at < cursor->order_count;
  if (!has_next && cursor->order_count == order_.size()) {
    cursor->stage = Stage::kOrder;
    return;
  }
  const Path from = cursor->is_in_set ? path_of(counters_, cursor->set) : Path();
  const uint32_t next = has_next ? order_[cursor->order_at++] : 0;
  const Path to = has_next ? path_of(counters_, next) : Path();
  uint32_t common = 0;
  while (common < std::min(from.count, to.count) && from.keys[common] == to.keys[common]) ++common;
  for (uint32_t i = common; i < from.count; ++i) json->end_object();
  for (uint32_t i = common; i < to.count; ++i) json->key(to.keys[i]).begin_object();
  if (!has_next) json->end_object().more("\n");
  cursor->stage = has_next ? Stage::kLabels : Stage::kEnd;
  cursor->set = next;
  cursor->index = cursor->value = 0;
  cursor->is_in_set = has_next;
}

void StatsJson::write_counter(Cursor* cursor, JsonText* json) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor->set);
  if (cursor->index == set.count) {
    cursor->stage = Stage::kNextSet;
    return;
  }
  const SeenCounter counter = SeenCounter::of(counters_, set, cursor->index);
  json->key(counter.name);
  if (options_.is_described) json->begin_object().key("value");
  if (write_known_value(counter, json)) return end_counter(counter, cursor, json);
  json->begin_object().key("kind").text(counter.kind).key("unit").text(counter.unit);
  json->key("values").begin_array();
  cursor->value = 0;
  cursor->stage = Stage::kValues;
}

// Writes some of the values: a file of another build may have any number.
void StatsJson::write_values(Cursor* cursor, JsonText* json) const noexcept {
  constexpr size_t kAtOnce = 64;
  const CounterSetRecord& set = counters_.set(cursor->set);
  const SeenCounter counter = SeenCounter::of(counters_, set, cursor->index);
  const size_t end = std::min(counter.values.size(), cursor->value + kAtOnce);
  for (; cursor->value < end; ++cursor->value) json->number(counter.values[cursor->value].read());
  if (end < counter.values.size()) return;
  json->end_array().end_object();
  cursor->stage = Stage::kCounters;
  end_counter(counter, cursor, json);
}

void StatsJson::end_counter(const SeenCounter& counter, Cursor* cursor,
                            JsonText* json) const noexcept {
  ++cursor->index;
  if (!options_.is_described) return;
  json->key("kind").text(counter.kind).key("unit").text(counter.unit);
  json->key("help").text(counter.help);
  if (!counter.column.empty()) json->key("column").text(counter.column);
  json->end_object();
}

}  // namespace bedplate
