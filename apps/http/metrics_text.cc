#include "apps/http/metrics_text.h"

#include <algorithm>
#include <string_view>

#include "apps/counters/counter_alerts.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/counter_table.h"
#include "platform/text_writer.h"

namespace bedplate {
namespace {

bool is_seconds(const CounterRecord& counter) noexcept {
  return CountersView::text(counter.unit) == "ns";
}

// "round" of "round_ns".
std::string_view without(std::string_view name, std::string_view end) noexcept {
  if (name.ends_with(end)) name.remove_suffix(end.size());
  return name;
}

// Names of sets, counters and owners have a-z, 0-9, _ and -; a metric's name allows no -.
void write_word(std::string_view word, TextWriter* writer) noexcept {
  for (const char& each : word) writer->text(each == '-' ? "_" : std::string_view(&each, 1));
}

void write_value(const CounterRecord& counter, uint64_t value, TextWriter* writer) noexcept {
  if (is_seconds(counter)) {
    writer->billionths(value);
  } else {
    writer->number(value);
  }
}

constexpr uint32_t kPowers = Histogram::kPowerMax - Histogram::kStepBits + 1;
// The index after the last fine bucket of a power of two.
constexpr size_t end_of_power(uint32_t power) noexcept {
  return (size_t{power} + 1) << Histogram::kStepBits;
}

}  // namespace

bool MetricsText::is_of_group(uint32_t set, uint32_t first) const noexcept {
  if (!counters_.is_there(set)) return false;
  const CounterSetRecord& one = counters_.set(set);
  const CounterSetRecord& other = counters_.set(first);
  return one.owner == other.owner && one.name == other.name && one.count == other.count;
}

bool MetricsText::is_first_of_group(uint32_t set) const noexcept {
  for (uint32_t before = 0; before < set; ++before) {
    if (is_of_group(before, set)) return false;
  }
  return true;
}

bool MetricsText::next_set(Place* place) const noexcept {
  while (!place->is_found && place->set < counters_.set_count()) {
    place->is_found = counters_.is_there(place->set) && is_first_of_group(place->set);
    if (!place->is_found) ++place->set;
  }
  place->member = std::max(place->member, place->set);
  return place->is_found;
}

size_t MetricsText::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  size_t written = 0;
  while (!place_.is_ended) {
    TextWriter writer(to.subspan(written));
    Place after = place_;
    const bool is_more = write_line(&after, &writer);
    BP_DCHECK(written > 0 || !writer.is_full());  // otherwise it would look like the end
    if (writer.is_full()) break;
    if (!is_more) after.is_ended = true;
    place_ = after;
    written += writer.bytes();
  }
  return written;
}

void MetricsText::write_appliance(TextWriter* writer) const noexcept {
  writer->text("# HELP bedplate_appliance_info The appliance that these counters belong to.\n"
               "# TYPE bedplate_appliance_info gauge\n"
               "bedplate_appliance_info{name=\"");
  writer->escaped(counters_.appliance(), "\\\"").text("\"} 1\n");
  writer->text("# HELP bedplate_appliance_uptime_seconds The time since the counters began.\n"
               "# TYPE bedplate_appliance_uptime_seconds gauge\n"
               "bedplate_appliance_uptime_seconds{} ");
  writer->billionths(monotonic_ns() - counters_.header().begun_ns).text("\n");
}

// Writes the next line, with its metric's head if it is the first. Returns false at the end.
bool MetricsText::write_line(Place* place, TextWriter* writer) const noexcept {
  if (!place->has_name) {
    place->has_name = true;
    write_appliance(writer);
    return true;
  }
  while (next_set(place)) {
    const CounterSetRecord& first = counters_.set(place->set);
    for (; place->counter <= first.count; ++place->counter, place->has_head = false) {
      for (; place->member < counters_.set_count(); ++place->member, place->line = 0) {
        if (is_of_group(place->member, place->set) && write_sample(place, writer)) return true;
      }
      place->member = place->set;
    }
    place->counter = 0;
    ++place->set;
    place->is_found = false;
  }
  if (write_alert(place, writer)) return true;
  if (format_ == MetricsFormat::kOpenMetrics) writer->text("# EOF\n");
  return false;
}

// Writes the next alert, even if it is not raised: a series that never existed cannot raise an
// alert.
bool MetricsText::write_alert(Place* place, TextWriter* writer) const noexcept {
  const uint32_t index = place->alert++;
  if (index >= counters_.alert_count()) return false;
  if (index == 0) {
    writer->text("# HELP bedplate_alert Whether this needs a look: / and bedplate top say why.\n"
                 "# TYPE bedplate_alert gauge\n");
  }
  const CounterAlertRecord& alert = counters_.alert(index);
  if (!counters_.is_there(alert.set)) return true;
  const CounterSetRecord& set = counters_.set(alert.set);
  char subject[3 * sizeof(OwnerName)];
  TextWriter name(subject);
  write_alert_subject(counters_, index, &name);
  writer->text("bedplate_alert{of=\"").escaped({subject, name.bytes()}, "\\\"");
  writer->text("\",counter=\"")
      .text(CountersView::text(counters_.counter(set, alert.counter).name));
  writer->text(is_raised(counters_, index) ? "\"} 1\n" : "\"} 0\n");
  return true;
}

void MetricsText::write_name(const Place& place, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(place.set);
  writer->text("bedplate_");
  const std::string_view owner = CountersView::text(set.owner.text);
  const bool has_instance = !CountersView::text(set.instance.text).empty();
  write_word(owner.empty() ? CountersView::text(set.name.text) : owner, writer);
  if (!owner.empty() && has_instance) {
    writer->text("_");
    write_word(CountersView::text(set.name.text), writer);
  }
  writer->text("_");
  if (place.counter == set.count) {
    writer->text("info");
    return;
  }
  const CounterRecord& counter = counters_.counter(set, place.counter);
  std::string_view name = CountersView::text(counter.name);
  if (is_kind(counter, CounterKind::kCounter)) name = without(name, "_total");
  if (!is_seconds(counter)) {
    write_word(name, writer);
    return;
  }
  write_word(without(name, "_ns"), writer);
  writer->text("_seconds");
}

void MetricsText::write_head(const Place& place, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(place.set);
  const bool is_info = place.counter == set.count;
  const CounterRecord* counter = is_info ? nullptr : &counters_.counter(set, place.counter);
  const bool is_counter = counter != nullptr && is_kind(*counter, CounterKind::kCounter);
  const bool is_open = format_ == MetricsFormat::kOpenMetrics;
  // In OpenMetrics only the samples have the ending.
  const std::string_view end = is_counter && !is_open ? "_total " : " ";
  const std::string_view help =
      is_info ? "Values that are not numbers, as labels." : CountersView::text(counter->help);
  writer->text("# HELP ");
  write_name(place, writer);
  writer->text(end).escaped(help, is_open ? "\\\"" : "\\").text("\n# TYPE ");
  write_name(place, writer);
  const bool is_histogram = counter != nullptr && is_kind(*counter, CounterKind::kHistogram);
  writer->text(end).text(is_counter ? "counter\n" : is_histogram ? "histogram\n" : "gauge\n");
  if (is_open && counter != nullptr && is_seconds(*counter)) {
    writer->text("# UNIT ");
    write_name(place, writer);
    writer->text(" seconds\n");
  }
  if (counter != nullptr) write_column(place, writer);
}

// Writes the owner, set and column under which the status page shows the counter at a glance.
// Requires: `place` is at a counter.
void MetricsText::write_column(const Place& place, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(place.set);
  const CounterRecord& counter = counters_.counter(set, place.counter);
  const std::string_view column = counters_.column(counter);
  if (column.empty() || format_ == MetricsFormat::kOpenMetrics) return;
  writer->text("# GLANCE ");
  write_name(place, writer);
  writer->text(is_kind(counter, CounterKind::kCounter) ? "_total" : "");
  writer->text("{owner=\"").escaped(CountersView::text(set.owner.text), "\\\"");
  writer->text("\",set=\"");
  // Sets without an instance count as one.
  if (!CountersView::text(set.instance.text).empty()) {
    write_word(CountersView::text(set.name.text), writer);
  }
  writer->text("\",column=\"").escaped(column, "\\\"").text("\"}\n");
}

// Writes the head if it is missing, then the name and the first label, and leaves the brace open.
// Returns true if there is such a label.
bool MetricsText::begin_sample(Place* place, const char* suffix,
                               TextWriter* writer) const noexcept {
  if (!place->has_head) write_head(*place, writer);
  place->has_head = true;
  write_name(*place, writer);
  writer->text(suffix).text("{");
  const CounterSetRecord& set = counters_.set(place->member);
  const std::string_view instance = CountersView::text(set.instance.text);
  if (instance.empty()) return false;
  write_word(CountersView::text(set.name.text), writer);
  writer->text("=\"").escaped(instance, "\\\"").text("\"");
  return true;
}

// Returns true if it has written a line of this member.
bool MetricsText::write_sample(Place* place, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  BP_DCHECK(place->member >= place->set && set.count == counters_.set(place->set).count);
  BP_DCHECK(place->counter <= set.count);
  if (place->counter == set.count) return write_labels(place, writer);
  const CounterRecord& counter = counters_.counter(set, place->counter);
  if (is_kind(counter, CounterKind::kHistogram)) return write_histogram(place, writer);
  if (is_kind(counter, CounterKind::kState) || is_kind(counter, CounterKind::kFlags)) {
    return write_words(place, writer);
  }
  // Each text value would become a series of its own.
  if (is_kind(counter, CounterKind::kText)) return false;
  const uint64_t value = counters_.values(set, counter)[0].read();
  const bool is_counter = is_kind(counter, CounterKind::kCounter);
  if (place->line > 0 || (!is_counter && value == kNoValue)) return false;
  begin_sample(place, is_counter ? "_total" : "", writer);
  writer->text("} ");
  write_value(counter, value, writer);
  writer->text("\n");
  ++place->line;
  return true;
}

bool MetricsText::write_labels(Place* place, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  if (place->line > 0 || set.label_count == 0) return false;
  bool has_label = begin_sample(place, "", writer);
  for (uint32_t i = 0; i < set.label_count; ++i) {
    const CounterLabelRecord& label = counters_.label(set, i);
    if (has_label) writer->text(",");
    has_label = true;
    write_word(CountersView::text(label.name), writer);
    writer->text("=\"").escaped(CountersView::text(label.value), "\\\"").text("\"");
  }
  writer->text("} 1\n");
  ++place->line;
  return true;
}

bool MetricsText::write_words(Place* place, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  const CounterRecord& counter = counters_.counter(set, place->counter);
  const auto word = CountersView::word_at(CountersView::text(counter.words), place->line);
  if (!word) return false;
  const uint64_t value = counters_.values(set, counter)[0].read();
  const bool is_state = is_kind(counter, CounterKind::kState);
  const bool holds = is_state ? value == place->line : (value >> (place->line % 64) & 1) != 0;
  if (begin_sample(place, "", writer)) writer->text(",");
  writer->text("is=\"").escaped(*word, "\\\"").text(holds ? "\"} 1\n" : "\"} 0\n");
  ++place->line;
  return true;
}

// Writes the whole histogram at once, from values read once, since they keep growing.
bool MetricsText::write_histogram(Place* place, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  const CounterRecord& counter = counters_.counter(set, place->counter);
  if (place->line > 0) return false;
  ++place->line;
  const std::span<const Counter> buckets = counters_.values(set, counter);
  uint64_t count = 0, sum = 0;
  size_t next = 0;
  const auto begin_bucket = [&] {
    const bool has_label = begin_sample(place, "_bucket", writer);
    writer->text(has_label ? ",le=\"" : "le=\"");
  };
  for (uint32_t power = 0; power < kPowers; ++power) {
    for (; next < std::min(end_of_power(power), buckets.size()); ++next) {
      const uint64_t here = buckets[next].read();
      count += here;
      sum += here * Histogram::last_of(next);
    }
    if (power == kPowers - 1) break;  // the last bucket also has the values above all bounds
    begin_bucket();
    write_value(counter, Histogram::last_of(next - 1), writer);
    // OpenMetrics requires a floating-point bound.
    writer->text(is_seconds(counter) ? "\"} " : ".0\"} ").number(count).text("\n");
  }
  begin_bucket();
  writer->text("+Inf\"} ").number(count).text("\n");
  begin_sample(place, "_sum", writer);
  writer->text("} ");
  write_value(counter, sum, writer);
  writer->text("\n");
  begin_sample(place, "_count", writer);
  writer->text("} ").number(count).text("\n");
  return true;
}

}  // namespace bedplate
