#include "apps/program/top/top_json.h"

#include "apps/program/counters/alerts.h"
#include "apps/program/counters/counter_text.h"

namespace bedplate {
namespace {

// A rate; null after the first look.
JsonValue real_json(const std::optional<double>& value) {
  return value ? JsonValue(*value) : JsonValue();
}

// The object for a set's counters in `json`, at its position in `stats --json`; made if missing.
JsonValue& object_of(const SeenSet& set, JsonValue* json) {
  // A service's sets that have no instance form one object.
  JsonValue& of_owner = set.owner.empty() ? *json : (*json)["services"][set.owner];
  JsonValue& of_set = set.owner.empty() || !set.instance.empty() ? of_owner[set.name] : of_owner;
  return set.instance.empty() ? of_set : of_set[set.instance];
}

JsonValue change_json(const CounterChange& change) {
  if (change.now.is(CounterKind::kCounter)) {
    JsonValue json = {{"total", change.now.read()}, {"per_second", real_json(change.per_second())}};
    if (change.now.unit == "ns") json["share"] = real_json(change.time_share());
    return json;
  }
  if (!change.now.is_histogram()) return counter_json(change.now);
  JsonValue json = counter_json(change.added_histogram());
  if (change.has_before && change.seconds > 0) {
    json["per_second"] = static_cast<double>(Histogram::count_of(change.added)) / change.seconds;
  }
  return json;
}

}  // namespace

JsonValue top_json(const TopAppliance& appliance) {
  if (!appliance.now) {
    char text[1024];
    return {{"path", appliance.path}, {"error", format_error(appliance.error, text, sizeof text)}};
  }
  JsonValue json = {{"name", appliance.now->appliance()},
                    {"pid", appliance.now->pid()},
                    {"running", appliance.is_running},
                    {"seconds", appliance.seconds()}};
  json["signs"] = alerts_json(*appliance.now);
  for (const SetChange& change : appliance.changes()) {
    JsonValue& object = object_of(*change.set, &json);
    for (const auto& [label, value] : change.set->labels) object[label] = value;
    for (const CounterChange& counter : change.counters) {
      object[counter.now.name] = change_json(counter);
    }
  }
  return json;
}

}  // namespace bedplate
