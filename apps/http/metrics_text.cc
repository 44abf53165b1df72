#include "apps/http/metrics_text.h"

#include <algorithm>
#include <string_view>

#include "apps/boot/counter_signs.h"
#include "apps/boot/counter_table.h"
#include "apps/boot/piece.h"
#include "platform/assert.h"
#include "platform/clock.h"

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

// Sets, counters and owners are of a-z, 0-9, _ and -; a metric's name has no -.
void write_word(std::string_view word, Piece* piece) noexcept {
  for (const char& each : word) piece->text(each == '-' ? "_" : std::string_view(&each, 1));
}

void write_value(const CounterRecord& counter, uint64_t value, Piece* piece) noexcept {
  if (is_seconds(counter)) {
    piece->billionths(value);
  } else {
    piece->number(value);
  }
}

constexpr uint32_t kPowers = Histogram::kPowerMax - Histogram::kStepBits + 1;
// One more than the last bucket of a power of two.
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
    Piece piece(to.subspan(written));
    Place after = place_;
    const bool is_more = write_line(&after, &piece);
    BP_DCHECK(written > 0 || !piece.is_full());  // else it would be taken for the end
    if (piece.is_full()) break;
    if (!is_more) after.is_ended = true;
    place_ = after;
    written += piece.bytes();
  }
  return written;
}

void MetricsText::write_appliance(Piece* piece) const noexcept {
  piece->text("# HELP bedplate_appliance_info Whose counters these are.\n"
              "# TYPE bedplate_appliance_info gauge\nbedplate_appliance_info{name=\"");
  piece->escaped(counters_.appliance(), "\\\"").text("\"} 1\n");
  piece->text("# HELP bedplate_appliance_uptime_seconds How long it counts.\n"
              "# TYPE bedplate_appliance_uptime_seconds gauge\n"
              "bedplate_appliance_uptime_seconds{} ");
  piece->billionths(monotonic_ns() - counters_.header().begun_ns).text("\n");
}

// Writes the next line, with its metric's head if it is the first. Returns false at the end.
bool MetricsText::write_line(Place* place, Piece* piece) const noexcept {
  if (!place->has_name) {
    place->has_name = true;
    write_appliance(piece);
    return true;
  }
  while (next_set(place)) {
    const CounterSetRecord& first = counters_.set(place->set);
    for (; place->counter <= first.count; ++place->counter, place->has_head = false) {
      for (; place->member < counters_.set_count(); ++place->member, place->line = 0) {
        if (is_of_group(place->member, place->set) && write_sample(place, piece)) return true;
      }
      place->member = place->set;
    }
    place->counter = 0;
    ++place->set;
    place->is_found = false;
  }
  if (write_sign(place, piece)) return true;
  if (format_ == MetricsFormat::kOpenMetrics) piece->text("# EOF\n");
  return false;
}

// Writes the next sign, also if it is not raised: a series that never existed raises no alert.
bool MetricsText::write_sign(Place* place, Piece* piece) const noexcept {
  const uint32_t index = place->sign++;
  if (index >= counters_.sign_count()) return false;
  if (index == 0) {
    piece->text("# HELP bedplate_sign Whether this needs a look: / and bedplate top say why.\n"
                "# TYPE bedplate_sign gauge\n");
  }
  const CounterSignRecord& sign = counters_.sign(index);
  if (!counters_.is_there(sign.set)) return true;
  const CounterSetRecord& set = counters_.set(sign.set);
  char subject[3 * sizeof(OwnerName)];
  Piece name(subject);
  write_sign_subject(counters_, index, &name);
  piece->text("bedplate_sign{of=\"").escaped({subject, name.bytes()}, "\\\"");
  piece->text("\",counter=\"").text(CountersView::text(counters_.counter(set, sign.counter).name));
  piece->text(is_raised(counters_, index) ? "\"} 1\n" : "\"} 0\n");
  return true;
}

void MetricsText::write_name(const Place& place, Piece* piece) const noexcept {
  const CounterSetRecord& set = counters_.set(place.set);
  piece->text("bedplate_");
  const std::string_view owner = CountersView::text(set.owner.text);
  const bool has_instance = !CountersView::text(set.instance.text).empty();
  write_word(owner.empty() ? CountersView::text(set.name.text) : owner, piece);
  if (!owner.empty() && has_instance) {
    piece->text("_");
    write_word(CountersView::text(set.name.text), piece);
  }
  piece->text("_");
  if (place.counter == set.count) {
    piece->text("info");
    return;
  }
  const CounterRecord& counter = counters_.counter(set, place.counter);
  std::string_view name = CountersView::text(counter.name);
  if (is_kind(counter, CounterKind::kCounter)) name = without(name, "_total");
  if (!is_seconds(counter)) {
    write_word(name, piece);
    return;
  }
  write_word(without(name, "_ns"), piece);
  piece->text("_seconds");
}

void MetricsText::write_head(const Place& place, Piece* piece) const noexcept {
  const CounterSetRecord& set = counters_.set(place.set);
  const bool is_info = place.counter == set.count;
  const CounterRecord* counter = is_info ? nullptr : &counters_.counter(set, place.counter);
  const bool is_counter = counter != nullptr && is_kind(*counter, CounterKind::kCounter);
  const bool is_open = format_ == MetricsFormat::kOpenMetrics;
  // OpenMetrics has the ending with the samples alone.
  const std::string_view end = is_counter && !is_open ? "_total " : " ";
  const std::string_view help =
      is_info ? "What is no number, as labels." : CountersView::text(counter->help);
  piece->text("# HELP ");
  write_name(place, piece);
  piece->text(end).escaped(help, is_open ? "\\\"" : "\\").text("\n# TYPE ");
  write_name(place, piece);
  const bool is_histogram = counter != nullptr && is_kind(*counter, CounterKind::kHistogram);
  piece->text(end).text(is_counter ? "counter\n" : is_histogram ? "histogram\n" : "gauge\n");
  if (is_open && counter != nullptr && is_seconds(*counter)) {
    piece->text("# UNIT ");
    write_name(place, piece);
    piece->text(" seconds\n");
  }
  if (counter != nullptr) write_column(place, piece);
}

// Writes the owner, set and column under which the counter is seen at a glance. Requires: place is
// at a counter.
void MetricsText::write_column(const Place& place, Piece* piece) const noexcept {
  const CounterSetRecord& set = counters_.set(place.set);
  const CounterRecord& counter = counters_.counter(set, place.counter);
  const std::string_view column = counters_.column(counter);
  if (column.empty() || format_ == MetricsFormat::kOpenMetrics) return;
  piece->text("# GLANCE ");
  write_name(place, piece);
  piece->text(is_kind(counter, CounterKind::kCounter) ? "_total" : "");
  piece->text("{owner=\"").escaped(CountersView::text(set.owner.text), "\\\"");
  piece->text("\",set=\"");
  // Sets without an instance are shown as one.
  if (!CountersView::text(set.instance.text).empty()) {
    write_word(CountersView::text(set.name.text), piece);
  }
  piece->text("\",column=\"").escaped(column, "\\\"").text("\"}\n");
}

// Writes the head if it is not there yet, then the name and the first label, whose brace stays
// open. Returns true if there was such a label.
bool MetricsText::begin_sample(Place* place, const char* suffix, Piece* piece) const noexcept {
  if (!place->has_head) write_head(*place, piece);
  place->has_head = true;
  write_name(*place, piece);
  piece->text(suffix).text("{");
  const CounterSetRecord& set = counters_.set(place->member);
  const std::string_view instance = CountersView::text(set.instance.text);
  if (instance.empty()) return false;
  write_word(CountersView::text(set.name.text), piece);
  piece->text("=\"").escaped(instance, "\\\"").text("\"");
  return true;
}

// Returns true if this member had a line left.
bool MetricsText::write_sample(Place* place, Piece* piece) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  BP_DCHECK(place->member >= place->set && set.count == counters_.set(place->set).count);
  BP_DCHECK(place->counter <= set.count);
  if (place->counter == set.count) return write_labels(place, piece);
  const CounterRecord& counter = counters_.counter(set, place->counter);
  if (is_kind(counter, CounterKind::kHistogram)) return write_histogram(place, piece);
  if (is_kind(counter, CounterKind::kState) || is_kind(counter, CounterKind::kFlags)) {
    return write_words(place, piece);
  }
  // Each value of a text would be a series of its own.
  if (is_kind(counter, CounterKind::kText)) return false;
  const uint64_t value = counters_.values(set, counter)[0].read();
  const bool is_counter = is_kind(counter, CounterKind::kCounter);
  if (place->line > 0 || (!is_counter && value == kNoValue)) return false;
  begin_sample(place, is_counter ? "_total" : "", piece);
  piece->text("} ");
  write_value(counter, value, piece);
  piece->text("\n");
  ++place->line;
  return true;
}

bool MetricsText::write_labels(Place* place, Piece* piece) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  if (place->line > 0 || set.label_count == 0) return false;
  bool has_label = begin_sample(place, "", piece);
  for (uint32_t i = 0; i < set.label_count; ++i) {
    const CounterLabelRecord& label = counters_.label(set, i);
    if (has_label) piece->text(",");
    has_label = true;
    write_word(CountersView::text(label.name), piece);
    piece->text("=\"").escaped(CountersView::text(label.value), "\\\"").text("\"");
  }
  piece->text("} 1\n");
  ++place->line;
  return true;
}

bool MetricsText::write_words(Place* place, Piece* piece) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  const CounterRecord& counter = counters_.counter(set, place->counter);
  const auto word = CountersView::word_at(CountersView::text(counter.words), place->line);
  if (!word) return false;
  const uint64_t value = counters_.values(set, counter)[0].read();
  const bool is_state = is_kind(counter, CounterKind::kState);
  const bool holds = is_state ? value == place->line : (value >> (place->line % 64) & 1) != 0;
  if (begin_sample(place, "", piece)) piece->text(",");
  piece->text("is=\"").escaped(*word, "\\\"").text(holds ? "\"} 1\n" : "\"} 0\n");
  ++place->line;
  return true;
}

// Writes the whole histogram at once, from numbers read once: they grow meanwhile.
bool MetricsText::write_histogram(Place* place, Piece* piece) const noexcept {
  const CounterSetRecord& set = counters_.set(place->member);
  const CounterRecord& counter = counters_.counter(set, place->counter);
  if (place->line > 0) return false;
  ++place->line;
  const std::span<const Counter> buckets = counters_.values(set, counter);
  uint64_t count = 0, sum = 0;
  size_t next = 0;
  const auto begin_bucket = [&] {
    const bool has_label = begin_sample(place, "_bucket", piece);
    piece->text(has_label ? ",le=\"" : "le=\"");
  };
  for (uint32_t power = 0; power < kPowers; ++power) {
    for (; next < std::min(end_of_power(power), buckets.size()); ++next) {
      const uint64_t here = buckets[next].read();
      count += here;
      sum += here * Histogram::last_of(next);
    }
    if (power == kPowers - 1) break;  // the last one has values beyond all bounds, too
    begin_bucket();
    write_value(counter, Histogram::last_of(next - 1), piece);
    // OpenMetrics wants a bound as a floating-point number.
    piece->text(is_seconds(counter) ? "\"} " : ".0\"} ").number(count).text("\n");
  }
  begin_bucket();
  piece->text("+Inf\"} ").number(count).text("\n");
  begin_sample(place, "_sum", piece);
  piece->text("} ");
  write_value(counter, sum, piece);
  piece->text("\n");
  begin_sample(place, "_count", piece);
  piece->text("} ").number(count).text("\n");
  return true;
}

}  // namespace bedplate
