// Tested by tests/system/command_line_test.py.
#include "apps/program/stats_json.h"

#include "apps/program/counter_text.h"

namespace bedplate {

Json& place_of(const SeenSet& set, Json* json) {
  // A service's own counters are one, however many sets it has made of them.
  Json& of_owner = set.owner.empty() ? *json : (*json)["services"][set.owner];
  Json& of_set = set.owner.empty() || !set.instance.empty() ? of_owner[set.name] : of_owner;
  return set.instance.empty() ? of_set : of_set[set.instance];
}

Json sets_json(const std::vector<SeenSet>& sets, bool is_described) {
  Json json = Json::object();
  for (const SeenSet& set : sets) {
    Json& place = place_of(set, &json);
    for (const auto& [label, value] : set.labels) place[label] = value;
    for (const SeenCounter& counter : set.counters) {
      Json value = counter_json(counter);
      if (is_described) {
        value = {{"value", std::move(value)},
                 {"kind", counter.kind},
                 {"unit", counter.unit},
                 {"help", counter.help}};
      }
      place[counter.name] = std::move(value);
    }
  }
  return json;
}

}  // namespace bedplate
