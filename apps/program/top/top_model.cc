#include "apps/program/top/top_model.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "apps/program/counters/alerts.h"
#include "apps/program/counters/counter_text.h"
#include "platform/assert.h"
#include "platform/histogram.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// The runtime's sets that come before the services, and after them; its other sets are left out.
constexpr std::array<std::string_view, 2> kFirst = {"shard", "source"};
constexpr std::array<std::string_view, 11> kLast = {"process",     "peer",       "verbs", "group",
                                                    "shard_group", "vfio",       "owner", "signals",
                                                    "pool",        "heap_owner", "heap"};
constexpr size_t kBarColumns = 20;

// Instances of one set; they have the same counters.
using Group = std::vector<const SetChange*>;

// The group's rank in the order of sections; nothing: it is not shown.
std::optional<size_t> rank_of(const SeenSet& set) {
  if (!set.owner.empty()) return kFirst.size();
  const auto first = std::find(kFirst.begin(), kFirst.end(), set.name);
  if (first != kFirst.end()) return static_cast<size_t>(first - kFirst.begin());
  const auto last = std::find(kLast.begin(), kLast.end(), set.name);
  if (last == kLast.end()) return {};
  return kFirst.size() + 1 + static_cast<size_t>(last - kLast.begin());
}

// "busy" for "busy_ns": the value's text shows that it is a time.
std::string head_of(const SeenCounter& counter) {
  constexpr std::string_view kUnit = "_ns";
  std::string_view name = counter.name;
  if (name.ends_with(kUnit)) name.remove_suffix(kUnit.size());
  return std::string(name);
}

std::optional<uint64_t> level_of(const SetChange& set, std::string_view name) {
  const CounterChange* found = set.find(name);
  if (found == nullptr || !found->now.is(CounterKind::kGauge)) return {};
  const uint64_t value = found->now.read();
  if (value == kNoValue) return {};
  return value;
}

// "used_bytes" with "limit_bytes" or, without such a counter, with "bytes".
struct Filling {
  uint64_t used;
  uint64_t whole;
};
std::optional<Filling> filling_of(const SetChange& set) {
  const auto used = level_of(set, "used_bytes");
  const bool has_limit = set.find("limit_bytes") != nullptr;
  const auto whole = level_of(set, has_limit ? "limit_bytes" : "bytes");
  if (!used || !whole || *whole == 0) return {};
  return Filling{*used, *whole};
}

// The length of a bar is proportional to its whole: the largest whole has a full bar.
std::string bar_text(const Filling& filling, uint64_t largest) {
  BP_ASSERT(filling.whole > 0 && filling.whole <= largest);
  const auto columns_of = [largest](uint64_t bytes) {
    const double share = static_cast<double>(bytes) / static_cast<double>(largest);
    return static_cast<size_t>(share * kBarColumns + 0.5);
  };
  const size_t length = std::clamp<size_t>(columns_of(filling.whole), 1, kBarColumns);
  const uint64_t used = std::min(filling.used, filling.whole);
  const size_t full =
      used == filling.whole ? length : std::min(columns_of(used), length > 1 ? length - 1 : 0);
  const double share = static_cast<double>(filling.used) / static_cast<double>(filling.whole);
  char percent[16];
  std::snprintf(percent, sizeof percent, " %3.0f%%", share * 100);
  return std::string(full, '#') + std::string(length - full, '.') +
         std::string(kBarColumns - length, ' ') + percent;
}

class SectionBuilder {
 public:
  explicit SectionBuilder(const Group& group) : group_(group) {
    BP_ASSERT(!group.empty());
    section_.title = group_name(*group[0]->set);
    for (const SetChange* set : group) {
      section_.rows.push_back({std::string(set->set->instance), {}});
    }
  }

  TopSection build() {
    for (const auto& label : group_[0]->set->labels) add_label(label.first);
    add_bars();
    for (const TopAspect aspect : {TopAspect::kShare, TopAspect::kRate, TopAspect::kPercentile,
                                   TopAspect::kLevel, TopAspect::kTotal}) {
      for (const CounterChange& counter : group_[0]->counters) {
        if (aspect_of(counter.now) == aspect) add_counter(counter.now, aspect);
      }
    }
    drop_idle_rows();
    return std::move(section_);
  }

 private:
  // The counter's change in each instance; nullptr if the instance of a foreign file lacks the
  // counter.
  std::vector<const CounterChange*> of_each(std::string_view name) const {
    std::vector<const CounterChange*> all;
    for (const SetChange* set : group_) all.push_back(set->find(name));
    return all;
  }

  template <typename Test>
  bool is_any(std::string_view name, Test test) const {
    const auto all = of_each(name);
    return std::any_of(all.begin(), all.end(),
                       [&](const CounterChange* one) { return one != nullptr && test(*one); });
  }

  // How the counter is shown; nothing: it is not.
  std::optional<TopAspect> aspect_of(const SeenCounter& counter) const {
    const bool is_changed =
        is_any(counter.name, [](const CounterChange& one) { return one.is_changed; });
    if (counter.is_histogram()) {
      return is_changed ? std::optional(TopAspect::kPercentile) : std::nullopt;
    }
    if (counter.is(CounterKind::kCounter) && is_changed) {
      return counter.unit == "ns" ? TopAspect::kShare : TopAspect::kRate;
    }
    const auto tells = [](const CounterChange& one) {
      return one.now.read() != 0 && one.now.read() != kNoValue;
    };
    if (counter.is(CounterKind::kText) && !is_any(counter.name, tells)) return {};  // an empty text
    if (!counter.read_words() && (!counter.is_number() || !is_any(counter.name, tells))) return {};
    return counter.is(CounterKind::kCounter) ? TopAspect::kTotal : TopAspect::kLevel;
  }

  template <typename ValueOf>
  void add(std::string_view counter, std::string name, TopAspect aspect, ValueOf value_of) {
    section_.columns.push_back({std::string(counter), std::move(name), aspect});
    const auto all = of_each(counter);
    BP_ASSERT(all.size() == section_.rows.size());  // idle rows are dropped later
    for (size_t i = 0; i < all.size(); ++i) {
      section_.rows[i].values.push_back(all[i] == nullptr ? TopValue{"-"} : value_of(*all[i]));
    }
  }

  void add_label(std::string_view label) {
    section_.columns.push_back({std::string(label), std::string(label), TopAspect::kLabel});
    for (size_t i = 0; i < group_.size(); ++i) {
      const auto& labels = group_[i]->set->labels;
      const auto found = std::find_if(labels.begin(), labels.end(),
                                      [&](const auto& one) { return one.first == label; });
      section_.rows[i].values.push_back({found == labels.end() ? "-" : std::string(found->second)});
    }
  }

  void add_bars() {
    uint64_t largest = 0;
    std::vector<std::optional<Filling>> fillings;
    for (const SetChange* set : group_) {
      fillings.push_back(filling_of(*set));
      if (fillings.back()) largest = std::max(largest, fillings.back()->whole);
    }
    if (largest == 0) return;
    section_.columns.push_back({"used_bytes", "share", TopAspect::kBar});
    for (size_t i = 0; i < group_.size(); ++i) {
      const auto& one = fillings[i];
      section_.rows[i].values.push_back(
          one ? TopValue{bar_text(*one, largest),
                         static_cast<double>(one->used) / static_cast<double>(one->whole)}
              : TopValue{"-"});
    }
  }

  void add_counter(const SeenCounter& counter, TopAspect aspect) {
    const std::string name = head_of(counter);
    if (aspect == TopAspect::kShare) {
      add(counter.name, name, aspect, [](const CounterChange& one) {
        const double share = one.time_share().value_or(0);
        return TopValue{share_text(share), share};
      });
    } else if (aspect == TopAspect::kRate) {
      add(counter.name, name, aspect, [](const CounterChange& one) {
        const double rate = one.per_second().value_or(0);
        return TopValue{rate_text(rate, one.now.unit), rate};
      });
    } else if (aspect == TopAspect::kPercentile) {
      add_percentiles(counter, name);
    } else {
      add(counter.name, name, aspect, [](const CounterChange& one) {
        const uint64_t value = one.now.read();
        const auto number = static_cast<double>(value);
        if (const auto words = one.now.read_words()) return TopValue{*words, number};
        if (one.now.is(CounterKind::kGauge) && value == kNoValue) return TopValue{"-"};
        return TopValue{amount_text(value, one.now.unit), number};
      });
    }
  }

  void add_percentiles(const SeenCounter& counter, const std::string& name) {
    add(counter.name, name, TopAspect::kRate, [](const CounterChange& one) {
      const double added = static_cast<double>(Histogram::count_of(one.added));
      const double rate = one.seconds > 0 ? added / one.seconds : 0;
      return TopValue{rate_text(rate, ""), rate};
    });
    for (const Percentile& percentile : kPercentiles) {
      if (!percentile.is_brief) continue;
      add(counter.name, name + " " + percentile.name, TopAspect::kPercentile,
          [&](const CounterChange& one) {
            if (!one.is_changed) return TopValue{"-"};
            const uint64_t value = Histogram::percentile_of(one.added, percentile.share);
            return TopValue{value_text(value, one.now.unit, false), static_cast<double>(value)};
          });
    }
  }

  // Drops rows that are all 0 and have no labels, if there are several rows.
  void drop_idle_rows() {
    size_t index = 0;
    const auto is_idle = [&](const TopRow&) {
      const SetChange& set = *group_[index++];
      return set.set->labels.empty() &&
             std::all_of(set.counters.begin(), set.counters.end(),
                         [](const CounterChange& one) { return is_zero(one.now); });
    };
    if (section_.rows.size() > 1) section_.idle_row_count = std::erase_if(section_.rows, is_idle);
  }

  const Group& group_;
  TopSection section_;
};

}  // namespace

std::string rate_text(double per_second, std::string_view unit) {
  if (unit == "bytes") {
    return value_text(static_cast<uint64_t>(per_second + 0.5), unit, false) + "/s";
  }
  return format_rounded_count(per_second).text + std::string("/s");
}

std::string share_text(double share) {
  char text[16];
  const double percent = share * 100;
  std::snprintf(text, sizeof text, percent > 0 && percent < 9.95 ? "%.1f%%" : "%.0f%%", percent);
  return text;
}

std::string amount_text(uint64_t value, std::string_view unit) {
  if (unit == "bytes" || unit == "ns" || unit == "boolean" || unit == "address") {
    return value_text(value, unit, false);
  }
  return format_rounded_count(static_cast<double>(value)).text;
}

std::optional<TopSection> alerts_section(const CountersSnapshot& now) {
  TopSection section;
  section.title = "needs a look";
  for (const SeenAlert& alert : alerts_of(now)) section.notes.push_back(alert.text());
  if (section.notes.empty()) return {};
  return section;
}

std::vector<TopSection> top_sections(const std::vector<SetChange>& changes) {
  struct Ranked {
    size_t rank;
    std::string title;
    Group group;
  };
  std::vector<Ranked> groups;
  for (const SetChange& set : changes) {
    const auto rank = rank_of(*set.set);
    if (!rank || set.counters.empty()) continue;
    // Each set without an instance gets its own section, even if titles are equal.
    const std::string title = group_name(*set.set);
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Ranked& one) {
      return !set.set->instance.empty() && one.title == title && one.rank == *rank &&
             !one.group[0]->set->instance.empty();
    });
    if (found != groups.end()) {
      found->group.push_back(&set);
    } else {
      groups.push_back({*rank, title, {&set}});
    }
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Ranked& left, const Ranked& right) { return left.rank < right.rank; });
  std::vector<TopSection> sections;
  for (const Ranked& one : groups) {
    TopSection section = SectionBuilder(one.group).build();
    if (!section.columns.empty() && !section.rows.empty()) sections.push_back(std::move(section));
  }
  return sections;
}

}  // namespace bedplate
