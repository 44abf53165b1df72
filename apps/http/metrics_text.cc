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
  // A sum and its parts are different metrics: whoever adds up one counts nothing twice.
  return one.owner == other.owner && one.name == other.name && one.count == other.count &&
         one.role == other.role;
}

bool MetricsText::is_first_of_group(uint32_t set) const noexcept {
  for (uint32_t before = 0; before < set; ++before) {
    if (is_of_group(before, set)) return false;
  }
  return true;
}

bool MetricsText::next_set(Cursor* cursor) const noexcept {
  while (!cursor->is_found && cursor->set < counters_.set_count()) {
    cursor->is_found = counters_.is_there(cursor->set) && is_first_of_group(cursor->set);
    if (!cursor->is_found) ++cursor->set;
  }
  cursor->member = std::max(cursor->member, cursor->set);
  return cursor->is_found;
}

size_t MetricsText::write(std::span<char> to) noexcept {
  BP_ASSERT(to.size() >= kPieceBytesMin);
  size_t written = 0;
  while (!cursor_.is_ended) {
    TextWriter writer(to.subspan(written));
    Cursor after = cursor_;
    const bool is_more = write_line(&after, &writer);
    BP_DCHECK(written > 0 || !writer.is_full());  // otherwise it would look like the end
    if (writer.is_full()) break;
    if (!is_more) after.is_ended = true;
    cursor_ = after;
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
bool MetricsText::write_line(Cursor* cursor, TextWriter* writer) const noexcept {
  if (!cursor->has_name) {
    cursor->has_name = true;
    write_appliance(writer);
    return true;
  }
  while (next_set(cursor)) {
    const CounterSetRecord& first = counters_.set(cursor->set);
    for (; cursor->counter <= first.count; ++cursor->counter, cursor->has_head = false) {
      for (; cursor->member < counters_.set_count(); ++cursor->member, cursor->line = 0) {
        if (is_of_group(cursor->member, cursor->set) && write_sample(cursor, writer)) return true;
      }
      cursor->member = cursor->set;
    }
    cursor->counter = 0;
    ++cursor->set;
    cursor->is_found = false;
  }
  if (write_alert(cursor, writer)) return true;
  if (format_ == MetricsFormat::kOpenMetrics) writer->text("# EOF\n");
  return false;
}

// Writes the next alert, even if it is not raised: a series that never existed cannot raise an
// alert.
bool MetricsText::write_alert(Cursor* cursor, TextWriter* writer) const noexcept {
  const uint32_t index = cursor->alert++;
  if (index >= counters_.alert_count()) return false;
  if (index == 0) {
    writer->text("# HELP bedplate_sign Whether this needs a look: / and bedplate top say why.\n"
                 "# TYPE bedplate_sign gauge\n");
  }
  const CounterAlertRecord& alert = counters_.alert(index);
  if (!counters_.is_there(alert.set)) return true;
  const CounterSetRecord& set = counters_.set(alert.set);
  char subject[3 * sizeof(OwnerName)];
  TextWriter name(subject);
  write_alert_subject(counters_, index, &name);
  writer->text("bedplate_sign{of=\"").escaped({subject, name.bytes()}, "\\\"");
  writer->text("\",counter=\"")
      .text(CountersView::text(counters_.counter(set, alert.counter).name));
  writer->text(is_raised(counters_, index) ? "\"} 1\n" : "\"} 0\n");
  return true;
}

void MetricsText::write_name(const Cursor& cursor, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor.set);
  writer->text("bedplate_");
  const std::string_view owner = CountersView::text(set.owner.text);
  const bool has_instance = !CountersView::text(set.instance.text).empty();
  write_word(owner.empty() ? CountersView::text(set.name.text) : owner, writer);
  if (!owner.empty() && has_instance) {
    writer->text("_");
    write_word(CountersView::text(set.name.text), writer);
  }
  writer->text("_");
  if (cursor.counter == set.count) {
    writer->text("info");
    return;
  }
  const CounterRecord& counter = counters_.counter(set, cursor.counter);
  std::string_view name = CountersView::text(counter.name);
  if (is_kind(counter, CounterKind::kCounter)) name = without(name, "_total");
  if (!is_seconds(counter)) {
    write_word(name, writer);
    return;
  }
  write_word(without(name, "_ns"), writer);
  writer->text("_seconds");
}

void MetricsText::write_head(const Cursor& cursor, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor.set);
  const bool is_info = cursor.counter == set.count;
  const CounterRecord* counter = is_info ? nullptr : &counters_.counter(set, cursor.counter);
  const bool is_counter = counter != nullptr && is_kind(*counter, CounterKind::kCounter);
  const bool is_open = format_ == MetricsFormat::kOpenMetrics;
  // In OpenMetrics only the samples have the ending.
  const std::string_view end = is_counter && !is_open ? "_total " : " ";
  const std::string_view help =
      is_info ? "Values that are not numbers, as labels." : CountersView::text(counter->help);
  writer->text("# HELP ");
  write_name(cursor, writer);
  writer->text(end).escaped(help, is_open ? "\\\"" : "\\").text("\n# TYPE ");
  write_name(cursor, writer);
  const bool is_histogram = counter != nullptr && is_kind(*counter, CounterKind::kHistogram);
  writer->text(end).text(is_counter ? "counter\n" : is_histogram ? "histogram\n" : "gauge\n");
  if (is_open && counter != nullptr && is_seconds(*counter)) {
    writer->text("# UNIT ");
    write_name(cursor, writer);
    writer->text(" seconds\n");
  }
  if (counter != nullptr) write_column(cursor, writer);
}

// Writes the owner, set and column under which the status page shows the counter at a glance.
// Requires: `cursor` is at a counter.
void MetricsText::write_column(const Cursor& cursor, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor.set);
  const CounterRecord& counter = counters_.counter(set, cursor.counter);
  const std::string_view column = counters_.column(counter);
  if (column.empty() || format_ == MetricsFormat::kOpenMetrics) return;
  writer->text("# GLANCE ");
  write_name(cursor, writer);
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
bool MetricsText::begin_sample(Cursor* cursor, const char* suffix,
                               TextWriter* writer) const noexcept {
  if (!cursor->has_head) write_head(*cursor, writer);
  cursor->has_head = true;
  write_name(*cursor, writer);
  writer->text(suffix).text("{");
  const CounterSetRecord& set = counters_.set(cursor->member);
  const std::string_view instance = CountersView::text(set.instance.text);
  if (instance.empty()) return false;
  const bool is_of_shard = is_role(set, CounterSetRole::kOfShard);
  write_word(is_of_shard ? "shard" : CountersView::text(set.name.text), writer);
  writer->text("=\"").escaped(instance, "\\\"").text("\"");
  return true;
}

// Returns true if it has written a line of this member.
bool MetricsText::write_sample(Cursor* cursor, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor->member);
  BP_DCHECK(cursor->member >= cursor->set && set.count == counters_.set(cursor->set).count);
  BP_DCHECK(cursor->counter <= set.count);
  if (cursor->counter == set.count) return write_labels(cursor, writer);
  const CounterRecord& counter = counters_.counter(set, cursor->counter);
  if (is_kind(counter, CounterKind::kHistogram)) return write_histogram(cursor, writer);
  if (is_kind(counter, CounterKind::kState) || is_kind(counter, CounterKind::kFlags)) {
    return write_words(cursor, writer);
  }
  // Each text value would become a series of its own.
  if (is_kind(counter, CounterKind::kText)) return false;
  const uint64_t value = counters_.values(set, counter)[0].read();
  const bool is_counter = is_kind(counter, CounterKind::kCounter);
  if (cursor->line > 0 || (!is_counter && value == kNoValue)) return false;
  begin_sample(cursor, is_counter ? "_total" : "", writer);
  writer->text("} ");
  write_value(counter, value, writer);
  writer->text("\n");
  ++cursor->line;
  return true;
}

bool MetricsText::write_labels(Cursor* cursor, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor->member);
  if (cursor->line > 0 || set.label_count == 0) return false;
  bool has_label = begin_sample(cursor, "", writer);
  for (uint32_t i = 0; i < set.label_count; ++i) {
    const CounterLabelRecord& label = counters_.label(set, i);
    if (has_label) writer->text(",");
    has_label = true;
    write_word(CountersView::text(label.name), writer);
    writer->text("=\"").escaped(CountersView::text(label.value), "\\\"").text("\"");
  }
  writer->text("} 1\n");
  ++cursor->line;
  return true;
}

bool MetricsText::write_words(Cursor* cursor, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor->member);
  const CounterRecord& counter = counters_.counter(set, cursor->counter);
  const auto word = CountersView::word_at(CountersView::text(counter.words), cursor->line);
  if (!word) return false;
  const uint64_t value = counters_.values(set, counter)[0].read();
  const bool is_state = is_kind(counter, CounterKind::kState);
  const bool holds = is_state ? value == cursor->line : (value >> (cursor->line % 64) & 1) != 0;
  if (begin_sample(cursor, "", writer)) writer->text(",");
  writer->text("is=\"").escaped(*word, "\\\"").text(holds ? "\"} 1\n" : "\"} 0\n");
  ++cursor->line;
  return true;
}

// Writes the whole histogram at once, from values read once, since they keep growing.
bool MetricsText::write_histogram(Cursor* cursor, TextWriter* writer) const noexcept {
  const CounterSetRecord& set = counters_.set(cursor->member);
  const CounterRecord& counter = counters_.counter(set, cursor->counter);
  if (cursor->line > 0) return false;
  ++cursor->line;
  const std::span<const Counter> buckets = counters_.values(set, counter);
  uint64_t count = 0, sum = 0;
  size_t next = 0;
  const auto begin_bucket = [&] {
    const bool has_label = begin_sample(cursor, "_bucket", writer);
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
  begin_sample(cursor, "_sum", writer);
  writer->text("} ");
  write_value(counter, sum, writer);
  writer->text("\n");
  begin_sample(cursor, "_count", writer);
  writer->text("} ").number(count).text("\n");
  return true;
}

}  // namespace bedplate
