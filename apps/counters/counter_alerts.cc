#include "apps/counters/counter_alerts.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {
namespace {

using AlertRule = CounterAlert::Rule;

const CounterDescription* find(const CounterSet& set, std::string_view name) noexcept {
  const auto found =
      std::find_if(set.counters.begin(), set.counters.end(),
                   [&](const CounterDescription& each) { return each.name == name; });
  return found == set.counters.end() ? nullptr : &*found;
}

bool has_label(const CounterSet& set, std::string_view name) noexcept {
  return std::any_of(set.labels.begin(), set.labels.end(),
                     [&](const CounterLabel& each) { return each.name == name; });
}

// Beginnings of words, and phrases.
constexpr std::string_view kTroubles[] = {
    "abandon",  "abort",     "broke",     "bad",       "closed",    "conflict", "could not",
    "cut off",  "cut_off",   "damaged",   "defect",    "died",      "drop",     "error",
    "fail",     "full",      "gone",      "late",      "left in",   "loss",     "lost",
    "makes no", "malform",   "may not",   "missed",    "missing",   "nonsense", "no sense",
    "no room",  "not allow", "not taken", "refus",     "reject",    "resent",   "stall",
    "stuck",    "timeout",   "too long",  "too many",  "truncat",   "turned",   "unhandled",
    "unreach",  "unforward", "unknown",   "unprotect", "unrecover", "want of",  "would not"};

bool speaks_of_trouble(std::string_view text) noexcept {
  const auto same = [](char one, char other) {
    return one == (other >= 'A' && other <= 'Z' ? other - 'A' + 'a' : other);
  };
  return std::any_of(std::begin(kTroubles), std::end(kTroubles), [&](std::string_view word) {
    auto at = text.begin();
    for (;; ++at) {
      at = std::search(at, text.end(), word.begin(), word.end(),
                       [&](char own, char sought) { return same(sought, own); });
      if (at == text.end()) return false;
      const bool is_begin = at == text.begin() || !std::isalpha(static_cast<uint8_t>(at[-1]));
      if (is_begin) return true;
    }
  });
}

// The text up to the next {NAME}, and this name; both are taken off.
struct Part {
  std::string_view text;
  std::string_view name;  // empty: no further name
};
Part take_part(std::string_view* says) noexcept {
  const size_t begin = says->find('{');
  const size_t end = says->find('}', std::min(begin, says->size()));
  if (end == std::string_view::npos) return {std::exchange(*says, {}), {}};
  const Part part = {says->substr(0, begin), says->substr(begin + 1, end - begin - 1)};
  says->remove_prefix(end + 1);
  return part;
}

void write_value(const CounterRecord& counter, std::span<const Counter> values,
                 TextWriter* writer) noexcept {
  const uint64_t value = values[0].read();
  const std::string_view unit = CountersView::text(counter.unit);
  if (is_kind(counter, CounterKind::kText)) {
    writer->text(SharedText::read(values).view());
  } else if (is_kind(counter, CounterKind::kState)) {
    const std::string_view words = CountersView::text(counter.words);
    const auto word = CountersView::word_at(words, std::min<uint64_t>(value, words.size()));
    word ? writer->text(*word) : writer->number(value);
  } else if (is_kind(counter, CounterKind::kGauge) && value == kNoValue) {
    writer->text("unknown");
  } else if (unit == "ns") {
    writer->text(format_rounded_ns(value).text);
  } else if (unit == "bytes") {
    writer->text(format_rounded_bytes(value).text);
  } else {
    writer->number(value);
  }
}

void write_named(const CountersView& counters, const CounterSetRecord& set, std::string_view name,
                 TextWriter* writer) noexcept {
  for (uint32_t i = 0; i < set.count; ++i) {
    const CounterRecord& counter = counters.counter(set, i);
    if (CountersView::text(counter.name) != name) continue;
    return write_value(counter, counters.values(set, counter), writer);
  }
  for (uint32_t i = 0; i < set.label_count; ++i) {
    const CounterLabelRecord& label = counters.label(set, i);
    if (CountersView::text(label.name) == name) writer->text(CountersView::text(label.value));
  }
}

}  // namespace

const char* defect_of(const CounterAlert& alert, const CounterSet& set) noexcept {
  if (alert.rule == AlertRule::kNone) return nullptr;
  if (alert.says.empty() || alert.says.size() >= sizeof CounterAlertRecord::says) {
    return "an alert needs a sentence of 1..159 bytes";
  }
  const bool has_other = alert.rule == AlertRule::kBelow || alert.rule == AlertRule::kStands;
  if (has_other && find(set, alert.of) == nullptr) {
    return "its alert refers to a counter that does not exist";
  }
  std::string_view rest = alert.says;
  while (!rest.empty()) {
    const Part part = take_part(&rest);
    if (!part.name.empty() && find(set, part.name) == nullptr && !has_label(set, part.name)) {
      return "the sentence of its alert names a counter that does not exist";
    }
  }
  return nullptr;
}

// For a gauge only the name counts: its help may mention losses that other counters count.
bool tells_of_trouble(const CounterDescription& counter) noexcept {
  const bool is_boolean = counter.kind == CounterKind::kGauge && counter.unit == "boolean";
  if (counter.kind == CounterKind::kCounter || is_boolean) {
    return speaks_of_trouble(counter.name) || speaks_of_trouble(counter.help);
  }
  return counter.kind == CounterKind::kGauge && speaks_of_trouble(counter.name);
}

void CounterAlerts::create(CountersFile& file, std::span<const CounterSet> sets) {
  BP_ASSERT(file_ == nullptr);
  file_ = &file;
  const CountersView view = file.view();
  uint32_t next = 0;
  for (uint32_t i = 0; i < sets.size(); ++i) {
    const auto value_of = [&](const CounterDescription& counter) {
      const auto index = static_cast<uint32_t>(&counter - sets[i].counters.data());
      return &view.values(view.set(i), view.counter(view.set(i), index))[0];
    };
    for (const CounterDescription& counter : sets[i].counters) {
      const CounterAlert& alert = counter.alert;
      if (alert.rule == AlertRule::kNone) continue;
      BP_ASSERT(defect_of(alert, sets[i]) == nullptr);
      const CounterDescription* other = alert.of.empty() ? nullptr : find(sets[i], alert.of);
      watched_.push_back({alert.rule, alert.limit, value_of(counter),
                          other == nullptr ? nullptr : value_of(*other), &file.alert(next++)});
    }
  }
  BP_ASSERT(next == view.alert_count());
}

bool CounterAlerts::holds(Watched& each, uint64_t now_ns) noexcept {
  const uint64_t value = each.value->read();
  const bool has_changed = each.is_seen && value != each.last_value;
  if (has_changed) each.changed_ns = now_ns;
  each.is_seen = true;
  each.last_value = value;
  switch (each.rule) {
    case AlertRule::kFrom: return value >= each.limit && value != kNoValue;
    case AlertRule::kBelow: {
      const uint64_t whole = each.other->read();
      using Product = unsigned __int128;
      return value != kNoValue && whole != kNoValue &&
             Product{value} * 100 < Product{whole} * each.limit;
    }
    case AlertRule::kUnless: return value != each.limit;
    case AlertRule::kGrows: return each.changed_ns != 0 && now_ns - each.changed_ns < kGrownNs;
    case AlertRule::kStands: return !has_changed && each.other->read() == 0;
    case AlertRule::kNone: break;
  }
  return false;
}

void CounterAlerts::look(uint64_t now_ns) noexcept {
  const CountersView view = file_->view();
  for (Watched& each : watched_) {
    if (!view.is_there(each.record->set)) continue;
    const bool holds_now = holds(each, now_ns);
    if (!holds_now) {
      each.held_ns = 0;
    } else if (each.held_ns == 0) {
      each.held_ns = now_ns;
    }
    const bool must_last = each.rule == AlertRule::kUnless || each.rule == AlertRule::kStands;
    const bool is_alert = holds_now && (!must_last || now_ns - each.held_ns >= kLastingNs);
    each.record->since_ns.store(is_alert ? each.held_ns : 0, std::memory_order_relaxed);
  }
}

bool is_raised(const CountersView& counters, uint32_t index) noexcept {
  const CounterAlertRecord& alert = counters.alert(index);
  return alert.since_ns.load(std::memory_order_relaxed) != 0 && counters.is_there(alert.set);
}

uint32_t raised_alert_count(const CountersView& counters) noexcept {
  uint32_t count = 0;
  for (uint32_t i = 0; i < counters.alert_count(); ++i) count += is_raised(counters, i) ? 1 : 0;
  return count;
}

void write_alert_subject(const CountersView& counters, uint32_t index,
                         TextWriter* writer) noexcept {
  const CounterSetRecord& set = counters.set(counters.alert(index).set);
  const std::string_view owner = CountersView::text(set.owner.text);
  const std::string_view instance = CountersView::text(set.instance.text);
  if (!owner.empty()) writer->text(owner);
  // All sets of a service that have no instance share one subject: the service.
  if (owner.empty() || !instance.empty()) {
    writer->text(owner.empty() ? "" : " ").text(CountersView::text(set.name.text));
  }
  if (!instance.empty()) writer->text(" ").text(instance);
}

void write_alert_text(const CountersView& counters, uint32_t index, TextWriter* writer) noexcept {
  const CounterAlertRecord& alert = counters.alert(index);
  std::string_view rest = CountersView::text(alert.says);
  while (!rest.empty()) {
    const Part part = take_part(&rest);
    writer->text(part.text);
    if (!part.name.empty()) write_named(counters, counters.set(alert.set), part.name, writer);
  }
}

}  // namespace bedplate
