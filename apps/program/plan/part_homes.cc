#include "apps/program/plan/part_homes.h"

#include <cstdio>

#include "apps/services/home_shards.h"

namespace bedplate {

std::vector<PartHome> homes_of(const AppliancePlan& plan) {
  std::vector<PartHome> homes;
  for (const ServiceNeeds& service : plan.services) {
    for (const CounterSet& set : service.counters) {
      for (const CounterLabel& label : set.labels) {
        if (label.name != kHomeLabel || label.value.empty()) continue;
        homes.push_back({service.name, set.name, set.instance, label.value});
      }
    }
  }
  return homes;
}

JsonValue homes_json(const std::vector<PartHome>& homes) {
  JsonValue all = JsonValue::array();
  for (const PartHome& home : homes) {
    all.push_back(
        {{"service", home.service}, {"set", home.set}, {"part", home.part}, {"shard", home.shard}});
  }
  return all;
}

void print_homes(const std::vector<PartHome>& homes) {
  for (const PartHome& home : homes) {
    std::printf("%s %s %s: on the shard %s\n", home.service.c_str(), home.set.c_str(),
                home.part.c_str(), home.shard.c_str());
  }
}

}  // namespace bedplate
