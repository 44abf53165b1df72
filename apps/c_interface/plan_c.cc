// The plan of a service in C: its part of bedplate_service.h, without files.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "apps/c_interface/service_c.h"
#include "apps/services/service_plan.h"
#include "platform/assert.h"

using namespace bedplate;

namespace {

// Each counter has its own cache line, so any thread may write it.
void plan_counter(bp_plan* plan, const char* name, CounterKind kind, const char* unit,
                  const char* help, const char* words = "") {
  CounterSet& set = plan->service.counters;
  set.counters.push_back({name, kind, unit, help, set.bytes, words});
  set.bytes += static_cast<uint32_t>(align_up(bytes_of(kind), kCacheLineBytes));
}

// Calls `change` on the description of a planned counter.
template <typename Change>
void change_counter(bp_plan* plan, const char* counter, Change&& change) {
  CounterDescriptions& planned = plan->service.counters.counters;
  std::vector<CounterDescription> all(planned.begin(), planned.end());
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == counter; });
  BP_REQUIRE(found != all.end(), "service %s changes the counter %s and has not planned it: %s",
             plan->service.name(), counter, "bp_plan_counter");
  change(*found);
  planned = std::move(all);
}

}  // namespace

extern "C" {

unsigned bp_plan_shard_count(const bp_plan* plan) {
  return static_cast<unsigned>(plan->plan.configuration().shards.size());
}
void bp_plan_memory(bp_plan* plan, const char* owner, size_t bytes, unsigned shard) {
  plan->plan.segment(owner, {{owner, bytes}}, plan->plan.placement(shard));
}
void bp_plan_heap(bp_plan* plan, size_t bytes) { plan->plan.heap(bytes); }
void bp_plan_kept_heap(bp_plan* plan, size_t bytes, unsigned thread_count) {
  plan->plan.kept_heap(OwnerName("heap", plan->service.name()), bytes, thread_count);
}
void bp_plan_connections(bp_plan* plan, unsigned shard, unsigned count, const char* key) {
  plan->plan.connections(shard, count, key);
}
void bp_plan_descriptors(bp_plan* plan, unsigned count, const char* key) {
  plan->plan.descriptors(count, key);
}
void bp_plan_threads(bp_plan* plan, unsigned count) { plan->plan.threads(count); }
void bp_plan_timers(bp_plan* plan, unsigned shard, unsigned count) {
  plan->plan.timers(shard, count);
}
void bp_plan_sources(bp_plan* plan, unsigned shard, unsigned count) {
  plan->plan.sources(shard, count);
}
void bp_plan_watches(bp_plan* plan, unsigned shard, unsigned count) {
  plan->plan.watches(shard, count);
}
void bp_plan_questions(bp_plan* plan, unsigned shard, unsigned count) {
  plan->plan.questions(shard, count);
}
void bp_plan_datagram_socket(bp_plan* plan, unsigned shard, const char* name, unsigned buffer_count,
                             unsigned buffer_bytes) {
  plan->plan.datagram_socket(shard, name, {buffer_count, buffer_bytes});
}
void bp_plan_messages(bp_plan* plan, unsigned shard) { plan->plan.messages(shard); }
void bp_plan_message(bp_plan* plan, const char* name) { plan->plan.message(name); }

void bp_plan_capability(bp_plan* plan, int number) { plan->plan.capability(number); }
void bp_plan_module(bp_plan* plan, const char* name) { plan->plan.module(name); }
void bp_plan_image_file(bp_plan* plan, const char* path) { plan->plan.image_file(path); }
void bp_plan_trace(bp_plan* plan, const char* kinds, const char* stations,
                   const char* const* subjects, size_t subject_count) {
  plan->plan.trace({kinds, stations, std::vector<std::string>(subjects, subjects + subject_count)});
}

void bp_plan_counter(bp_plan* plan, const char* name, const char* unit, const char* help) {
  plan_counter(plan, name, CounterKind::kCounter, unit, help);
}
void bp_plan_gauge(bp_plan* plan, const char* name, const char* unit, const char* help) {
  plan_counter(plan, name, CounterKind::kGauge, unit, help);
}

void bp_plan_histogram(bp_plan* plan, const char* name, const char* unit, const char* help) {
  plan_counter(plan, name, CounterKind::kHistogram, unit, help);
}

void bp_plan_boolean(bp_plan* plan, const char* name, const char* help) {
  plan_counter(plan, name, CounterKind::kGauge, "boolean", help);
}
void bp_plan_state(bp_plan* plan, const char* name, const char* words, const char* help) {
  plan_counter(plan, name, CounterKind::kState, "state", help, words);
}
void bp_plan_flags(bp_plan* plan, const char* name, const char* words, const char* help) {
  plan_counter(plan, name, CounterKind::kFlags, "flags", help, words);
}

void bp_plan_at_a_glance(bp_plan* plan, const char* counter, const char* heading) {
  change_counter(plan, counter, [&](CounterDescription& it) { it.at_a_glance(heading); });
}
void bp_plan_peak_of(bp_plan* plan, const char* counter, const char* key, const char* risk) {
  change_counter(plan, counter, [&](CounterDescription& it) { it.peak_of(key, risk); });
}
void bp_plan_refusals_of(bp_plan* plan, const char* counter, const char* key) {
  change_counter(plan, counter, [&](CounterDescription& it) { it.refusals_of(key); });
}
void bp_plan_alert_from(bp_plan* plan, const char* counter, uint64_t limit, const char* says) {
  change_counter(plan, counter, [&](CounterDescription& it) { it.alert_from(limit, says); });
}
void bp_plan_alert_below(bp_plan* plan, const char* counter, uint64_t hundredths, const char* of,
                         const char* says) {
  change_counter(plan, counter,
                 [&](CounterDescription& it) { it.alert_below(hundredths, of, says); });
}
void bp_plan_alert_unless(bp_plan* plan, const char* counter, uint64_t word, const char* says) {
  change_counter(plan, counter, [&](CounterDescription& it) { it.alert_unless(word, says); });
}
void bp_plan_alert_as_it_grows(bp_plan* plan, const char* counter, const char* says) {
  change_counter(plan, counter, [&](CounterDescription& it) { it.alert_as_it_grows(says); });
}
void bp_plan_alert_as_it_stands(bp_plan* plan, const char* counter, const char* unless,
                                const char* says) {
  change_counter(plan, counter,
                 [&](CounterDescription& it) { it.alert_as_it_stands(unless, says); });
}
void bp_plan_no_alert(bp_plan* plan, const char* counter, const char* why) {
  change_counter(plan, counter, [&](CounterDescription& it) { it.no_alert(why); });
}

}  // extern "C"
