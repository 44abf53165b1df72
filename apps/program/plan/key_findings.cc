#include "apps/program/plan/key_findings.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/loaded_configuration.h"
#include "pinned_pool/layout.h"
#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kSizeStepBytes = 4 * kKiB;

// The counts of one key.
struct Measured {
  std::optional<uint64_t> peak;
  std::optional<uint64_t> capacity;  // the limit for the peak; nothing: the key's value
  uint64_t refused = 0;
  std::string unit;
  std::string risk;
};

uint64_t with_margin(uint64_t amount) noexcept {
  const uint64_t more = std::max<uint64_t>(amount / 4, 1);
  return amount > ~more ? amount : amount + more;
}

bool is_power_of_two_in_use(const ConfigurationKey& key) noexcept {
  using Rule = ConfigurationKey::Rule;
  return key.rule() == Rule::kPowerOfTwo || key.rule() == Rule::kRoundedToPowerOfTwo;
}

// The value that is used for the key's `value`: some keys are rounded up to a power of two.
uint64_t in_use(const ConfigurationKey& key, uint64_t value) noexcept {
  return is_power_of_two_in_use(key) ? std::bit_ceil(value) : value;
}

// The smallest value from `wanted` up that the key takes without rounding; the key's maximum if
// that is less.
uint64_t rounded(const ConfigurationKey& key, const PoolSettings& pool, uint64_t wanted) {
  using Rule = ConfigurationKey::Rule;
  BP_ASSERT(key.min() <= key.max());
  uint64_t step = key.type() == ConfigurationKey::Type::kSize ? kSizeStepBytes : 1;
  if (key.rule() == Rule::kMultipleOfPages) step = page_bytes(smallest_page(pool.pages));
  uint64_t value = std::clamp(wanted, key.min(), key.max());
  if (is_power_of_two_in_use(key)) return std::min(std::bit_ceil(value), key.max());
  value = align_up(value, step);
  return value > key.max() ? key.max() : value;
}

// A plan's memory: the bytes planned beside the heap, which gets the rest; and all bytes.
struct Taken {
  uint64_t planned_bytes = 0;
  uint64_t total_bytes = 0;

  explicit Taken(const AppliancePlan& plan)
      : planned_bytes(plan.stacks.total_bytes()), total_bytes(plan.pool.total_bytes()) {
    for (const SegmentPlan& segment : plan.pool.segments) {
      if (!(segment.owner == OwnerName("heap"))) planned_bytes += segment.bytes;
    }
  }
  int64_t saved_by(const Taken& other) const noexcept {
    const auto planned = static_cast<int64_t>(planned_bytes - other.planned_bytes);
    return planned != 0 ? planned : static_cast<int64_t>(total_bytes - other.total_bytes);
  }
};

// The table and the key that a measure of `owner` names.
struct KeyPath {
  std::string table;
  std::string key;

  KeyPath(std::string_view owner, const std::string& key_of_owner) {
    const std::string path = (owner.empty() ? "" : std::string(owner) + ".") + key_of_owner;
    const size_t dot = path.rfind('.');
    table = path.substr(0, dot == std::string::npos ? 0 : dot);
    key = dot == std::string::npos ? path : path.substr(dot + 1);
  }
};

class Finder {
 public:
  explicit Finder(LoadedConfiguration& loaded)
      : loaded_(loaded), keys_(loaded.number_keys()), measured_(keys_.size()) {}

  Result<void> measure(const AppliancePlan& plan, const CountersSnapshot& snapshot);
  KeyFindings find(const Taken& now);

 private:
  Result<void> check_described(const AppliancePlan& plan) const;
  void measure_set(const CounterSet& planned, const SeenSet& seen);
  Result<Taken> plan_with(const ConfigurationKey& key, uint64_t number);
  void propose(const NumberKey& key, const Measured& measured, const Taken& now,
               KeyFinding* finding);
  bool could_take_less(const NumberKey& key, const Taken& now);

  LoadedConfiguration& loaded_;
  std::vector<NumberKey> keys_;
  std::vector<std::optional<Measured>> measured_;  // one for each key
};

// Refuses a measure of a key that no service describes. The configuration file may lack the table.
Result<void> Finder::check_described(const AppliancePlan& plan) const {
  std::vector<Service*> services = loaded_.configuration().services;
  const std::vector<KeyDescription> known = configuration_keys(services);
  for (const CounterSet& set : plan.counters()) {
    for (const CounterDescription& counter : set.counters) {
      if (counter.measure.kind == KeyMeasure::Kind::kNone) continue;
      const KeyPath named(set.owner, counter.measure.key);
      const auto is_it = [name = named.table + "." + named.key](const KeyDescription& key) {
        return key.name == name;
      };
      if (std::any_of(known.begin(), known.end(), is_it)) continue;
      return configuration_error_while("explaining the counter %s of %s", counter.name.c_str(),
                                       set.name.c_str())
          .set_answer("it measures %s.%s, which is not a key", named.table.c_str(),
                      named.key.c_str())
          .set_cure("this is a defect of the service: it must name a key of its table, as in "
                    "describe()");
    }
  }
  return {};
}

// Whether the set measures this table's key.
bool is_measured(const CounterSet& planned, const SeenSet& seen, const NumberKey& key) {
  if (!key.is_one_of_several) return true;
  // All sets of one name have the same description, but each measures tables of its own.
  if (planned.measured.empty() || planned.instance != seen.instance) {
    return key.instance == seen.instance;
  }
  const std::vector<std::string>& names = planned.measured;
  return std::find(names.begin(), names.end(), key.instance) != names.end();
}

void Finder::measure_set(const CounterSet& planned, const SeenSet& seen) {
  for (const CounterDescription& counter : planned.counters) {
    const KeyMeasure& measure = counter.measure;
    const auto value = seen.read(counter.name);
    if (measure.kind == KeyMeasure::Kind::kNone || !value || *value == kNoValue) continue;
    const KeyPath named(planned.owner, measure.key);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const NumberKey& key = keys_[i];
      if (key.table != named.table || key.key->name() != named.key) continue;
      if (!is_measured(planned, seen, key)) continue;
      if (!measured_[i]) measured_[i].emplace();
      Measured& its = *measured_[i];
      if (measure.kind == KeyMeasure::Kind::kRefusals) {
        its.refused += *value;
        if (its.unit.empty()) its.unit = counter.unit;
        continue;
      }
      its.unit = counter.unit;
      its.risk = measure.risk;
      if (its.peak && *its.peak > *value) continue;
      its.peak = value;
      its.capacity = measure.capacity.empty() ? std::nullopt : seen.read(measure.capacity);
      if (its.capacity == kNoValue) its.capacity.reset();
    }
  }
}

Result<void> Finder::measure(const AppliancePlan& plan, const CountersSnapshot& snapshot) {
  BP_TRY(check_described(plan));
  const std::vector<CounterSet> planned = plan.counters();
  for (const SeenSet& seen : snapshot.sets()) {
    const auto is_alike = [&](const CounterSet& set) {
      return set.owner == seen.owner && set.name == seen.name;
    };
    const auto is_it = [&](const CounterSet& set) {
      return is_alike(set) && set.instance == seen.instance;
    };
    auto found = std::find_if(planned.begin(), planned.end(), is_it);
    // Spare sets have no instance in the plan.
    if (found == planned.end()) found = std::find_if(planned.begin(), planned.end(), is_alike);
    if (found != planned.end()) measure_set(*found, seen);
  }
  return {};
}

Result<Taken> Finder::plan_with(const ConfigurationKey& key, uint64_t number) {
  BP_ASSERT(number >= key.min() && number <= key.max());
  const std::optional<uint64_t> before = key.number();
  key.set_number(number);
  const std::vector<Error> problems = loaded_.check();
  auto plan = problems.empty() ? plan_appliance(loaded_.configuration())
                               : Result<AppliancePlan>(problems.front());
  key.set_number(before);
  if (!plan.ok()) return plan.error();
  return Taken(plan.value());
}

void Finder::propose(const NumberKey& key, const Measured& measured, const Taken& now,
                     KeyFinding* finding) {
  const uint64_t now_in_use = in_use(*key.key, finding->value);
  const uint64_t capacity = measured.capacity.value_or(now_in_use);
  // A refused request may have needed more than the free rest. If the resource is far from full,
  // the refusal has another reason, such as a drain.
  const bool is_full =
      measured.refused > 0 && with_margin(measured.peak.value_or(capacity)) >= capacity;
  const bool is_over = measured.peak.value_or(0) > capacity;
  if (!is_full && !measured.peak) return;
  const uint64_t wanted = with_margin(std::max(is_full ? capacity : 0, measured.peak.value_or(0)));
  const uint64_t beside = now_in_use - std::min(now_in_use, capacity);
  const uint64_t value = rounded(*key.key, loaded_.configuration().pool, beside + wanted);
  if (is_full || is_over ? value <= now_in_use : value >= now_in_use) {
    if (is_full) finding->obstacle = "it is at its maximum already";
    return;
  }
  auto then = plan_with(*key.key, value);
  if (!then.ok()) {
    const Error& error = then.error();
    finding->obstacle =
        std::to_string(value) + " would be refused: " + error.answer + "; " + error.cure;
    return;
  }
  finding->proposed = value;
  finding->saved_bytes = now.saved_by(then.value());
}

// Whether halving the key's value would take less memory.
bool Finder::could_take_less(const NumberKey& key, const Taken& now) {
  const std::optional<uint64_t> value = key.key->number();
  if (!value || *value <= key.key->min()) return false;
  const uint64_t half = rounded(*key.key, loaded_.configuration().pool, *value / 2);
  if (half >= *value) return false;
  auto then = plan_with(*key.key, half);
  return then.ok() && now.saved_by(then.value()) > 0;
}

KeyFindings Finder::find(const Taken& now) {
  KeyFindings all;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const NumberKey& key = keys_[i];
    const auto& measured = measured_[i];
    // If the key has no value, uses the default that applied in the run.
    const auto value = key.key->number() || !measured ? key.key->number() : measured->capacity;
    if (!measured || !value) {
      if (could_take_less(key, now)) all.unknown.push_back(key.text());
      continue;
    }
    KeyFinding& finding = all.found.emplace_back();
    finding.key = key.text();
    finding.unit = measured->unit;
    finding.value = *value;
    finding.peak = measured->peak;
    finding.refused = measured->refused;
    finding.risk = measured->risk;
    propose(key, *measured, now, &finding);
  }
  return all;
}

}  // namespace

Result<KeyFindings> find_keys(LoadedConfiguration& loaded, const CountersSnapshot& snapshot) {
  BP_TRY_ASSIGN(const auto plan, plan_appliance(loaded.configuration()));
  Finder finder(loaded);
  BP_TRY(finder.measure(plan, snapshot));
  return finder.find(Taken(plan));
}

}  // namespace bedplate
