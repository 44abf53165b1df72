// The plan of a service in C, and what it gets for it: counters with alerts, files, traces,
// capabilities, modules, threads, keys; and the order in which its functions are called.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "apps/c_interface/bedplate_service.h"
#include "apps/services/service.h"
#include "apps/services/service_plan.h"
#include "apps/testing/c_service.h"
#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::MessagePeer;
using bedplate::testing::TestAppliance;

namespace {

std::string steps;
bp_context* its_context = nullptr;

int step(const char* name) {
  steps += std::string(name) + " ";
  return 0;
}

}  // namespace

TEST_GROUP(PlanC) {
  bp_service described = {};
  std::unique_ptr<Service> service;
  std::unique_ptr<TestAppliance> appliance;

  void setup() override {
    steps.clear();
    described.name = "store";
    described.create = [](void*, bp_context* context) {
      its_context = context;
      return 0;
    };
  }
  void teardown() override { appliance.reset(); }

  void make() {
    service = testing::make_service(described);
    appliance = std::make_unique<TestAppliance>(std::vector<Service*>{service.get()});
  }
  void boot() {
    make();
    STRCMP_EQUAL("", appliance->boot("[store]\n").c_str());
  }
  const ServiceNeeds& needs() { return appliance->needs(*service); }
  const CounterDescription& counter(const char* name) {
    for (const CounterSet& set : needs().counters) {
      for (const CounterDescription& each : set.counters) {
        if (each.name == name) return each;
      }
    }
    FAIL(name);
    return needs().counters[0].counters[0];
  }
};

TEST(PlanC, ItsFunctionsAreCalledInTheOrderOfABoot) {
  described.plan = [](void*, bp_plan*) { return step("plan"); };
  described.prepare = [](void*) { return step("prepare"); };
  described.create = [](void*, bp_context*) { return step("create"); };
  described.sealed = [](void*) { return step("sealed"); };
  described.start = [](void*, unsigned) { step("start"); };
  described.tick = [](void*) { step("tick"); };
  described.stopped = [](void*) { return step("stopped"); };
  boot();
  appliance->tick();
  appliance->stop();
  STRCMP_EQUAL("prepare create sealed start tick stopped ",
               steps.substr(steps.rfind("plan ") + 5).c_str());
}

TEST(PlanC, TellsTheStepThatFails) {
  described.prepare = [](void*) { return bp_fail("opening the device", "it is busy", "wait"); };
  make();
  STRCMP_EQUAL("store: opening the device: it is busy; wait", appliance->boot("[store]\n").c_str());
  described.prepare = nullptr;
  described.sealed = [](void*) { return -1; };
  appliance.reset();
  make();
  STRCMP_CONTAINS("calling sealed of the service store: it returned -1 without a reason",
                  appliance->boot("[store]\n").c_str());
}

TEST(PlanC, TellsWhatTheMachineLacks) {
  described.preflight = [](void*, bp_problems* problems) {
    bp_problem(problems, "looking for the card", "there is none", "plug one in");
  };
  described.drains_with_appliance = 1;
  make();
  std::vector<Error> problems;
  service->preflight(&problems);
  LONGS_EQUAL(1, problems.size());
  char text[256];
  STRCMP_EQUAL("looking for the card: there is none; plug one in",
               format_error(problems[0], text, sizeof text));
  CHECK_FALSE(service->drains_alone());
}

TEST(PlanC, PlansAllKindsOfCounters) {
  described.plan = [](void*, bp_plan* plan) {
    bp_plan_counter(plan, "lost", "items", "Lost items.");
    bp_plan_alert_as_it_grows(plan, "lost", "{lost} items were lost: buy a larger box");
    bp_plan_counter(plan, "refused", "items", "Refused items.");
    bp_plan_refusals_of(plan, "refused", "max_items");
    bp_plan_no_alert(plan, "refused", "clients try again");
    bp_plan_gauge(plan, "peak", "items", "The most items at once.");
    bp_plan_peak_of(plan, "peak", "max_items", "More items are refused.");
    bp_plan_boolean(plan, "full", "It is full.");
    bp_plan_alert_from(plan, "full", 1, "it is full: empty it");
    bp_plan_gauge(plan, "room", "items", "Space for items.");
    bp_plan_alert_below(plan, "room", 10, "peak", "space is short: empty it");
    bp_plan_state(plan, "door", "shut|open", "The door.");
    bp_plan_alert_unless(plan, "door", 0, "the door is open: shut it");
    bp_plan_flags(plan, "lamps", "red|green", "The lamps.");
    bp_plan_counter(plan, "beats", "beats", "Beats of its heart.");
    bp_plan_alert_as_it_stands(plan, "beats", "full", "it is dead: bury it");
    return 0;
  };
  boot();
  CHECK(counter("lost").alert.rule == CounterAlert::Rule::kGrows);
  CHECK(counter("refused").measure.kind == KeyMeasure::Kind::kRefusals);
  STRCMP_EQUAL("clients try again", counter("refused").alert.why_none.c_str());
  CHECK(counter("peak").measure.kind == KeyMeasure::Kind::kPeak);
  STRCMP_EQUAL("max_items", counter("peak").measure.key.c_str());
  STRCMP_EQUAL("boolean", counter("full").unit.c_str());
  CHECK(counter("full").alert.rule == CounterAlert::Rule::kFrom);
  CHECK(counter("room").alert.rule == CounterAlert::Rule::kBelow);
  STRCMP_EQUAL("shut|open", counter("door").words.c_str());
  CHECK(counter("door").alert.rule == CounterAlert::Rule::kUnless);
  CHECK(counter("lamps").kind == CounterKind::kFlags);
  CHECK(counter("beats").alert.rule == CounterAlert::Rule::kStands);
  bp_counter_set(bp_counter_of(its_context, "door"), 1);
  CHECK(appliance->counter("store", "door") == 1);
}

TEST(PlanC, PlansRightsModulesAndFilesOfAnImage) {
  described.plan = [](void*, bp_plan* plan) {
    bp_plan_descriptors(plan, 3, "max_items");
    bp_plan_threads(plan, 2);
    bp_plan_capability(plan, 12);
    bp_plan_module(plan, "loop");
    bp_plan_image_file(plan, "/etc/store");
    return 0;
  };
  make();
  STRCMP_EQUAL("", appliance->plan("[store]\n").c_str());
  LONGS_EQUAL(3, needs().descriptors);
  STRCMP_EQUAL("max_items in [store]", needs().descriptor_keys.c_str());
  LONGS_EQUAL(2, needs().threads);
  CHECK_EQUAL(uint64_t{1} << 12, needs().capabilities);
  STRCMP_EQUAL("loop", needs().modules.at(0).c_str());
  STRCMP_EQUAL("/etc/store", needs().image_files.at(0).c_str());
}

TEST(PlanC, PlansFilesWithAllTheirProperties) {
  described.plan = [](void*, bp_plan* plan) {
    bp_plan_file(plan, "plain", 0, "/a", NULL, 0, 1);
    bp_plan_file(plan, "all", 0, "/b", "path",
                 BP_FILE_WRITABLE | BP_FILE_CREATE | BP_FILE_DIRECT | BP_FILE_EXCLUDES_WRITERS |
                     BP_FILE_WHOLE_BLOCKS | BP_FILE_EXTENTS | BP_FILE_POLLED | BP_FILE_RENAMED,
                 8);
    bp_plan_file_bytes(plan, "all", 512, 1 << 20);
    return 0;
  };
  make();
  STRCMP_EQUAL("", appliance->plan("[store]\n").c_str());
  const FilePlan& plain = needs().files.at(0).plan;
  CHECK(!plain.is_writable && !plain.excludes_writers && !plain.tells_extents && !plain.is_polled);
  LONGS_EQUAL(0, plain.bytes_min);
  const FilePlan& all = needs().files.at(1).plan;
  CHECK(all.is_writable && all.create && all.is_direct && all.excludes_writers &&
        all.is_whole_blocks && all.tells_extents && all.is_polled && all.is_renamed);
  LONGS_EQUAL(512, all.bytes_min);
  LONGS_EQUAL(1 << 20, all.bytes_max);
}

TEST(PlanC, TracesItsRequests) {
  described.plan = [](void*, bp_plan* plan) {
    const char* const volumes[] = {"one", "two"};
    bp_plan_trace(plan, "get|set", "received|stored|sent", volumes, 2);
    return 0;
  };
  boot();
  LONGS_EQUAL(2, needs().trace->subjects.size());
  bp_trace* trace = bp_trace_of(its_context, 0);
  CHECK(trace != nullptr);
  bp_request request;
  bp_request_begin(&request, 1000);
  bp_request_pass(&request, 2, 1640);
  bp_trace_write(trace, &request, 77, 4096, 1, 1);
  const TraceRecord& record = appliance->traces(0)[0];
  CHECK_EQUAL(1000, record.begin_ns);
  CHECK_EQUAL(77, record.handle);
  CHECK_EQUAL(4096, record.bytes);
  LONGS_EQUAL(1, record.subject);
  LONGS_EQUAL(1, record.kind);
  CHECK_EQUAL(kTraceNotPassed, record.passed[0]);
  CHECK_EQUAL(10, record.passed[1]);
}

TEST(PlanC, WhatItHasNotPlannedIsRefused) {
  boot();
  POINTERS_EQUAL(nullptr, bp_trace_of(its_context, 0));
  STRCMP_CONTAINS("it has planned no traces", bp_error_text());
  uint32_t key = 7;
  size_t bytes = 7;
  LONGS_EQUAL(0, bp_has_peers(its_context));
  LONGS_EQUAL(0, bp_key_of(its_context, &key, sizeof key, &key));
  POINTERS_EQUAL(nullptr, bp_domain_of(its_context));
  POINTERS_EQUAL(nullptr, bp_exported(its_context, "none", &bytes));
  LONGS_EQUAL(0, bytes);
}

TEST(PlanC, HasThreadsOfItsOwn) {
  boot();
  static std::atomic<int> count;
  count = 0;
  bp_thread* thread = bp_thread_start(
      its_context, "counts", [](void* to) { ++*static_cast<std::atomic<int>*>(to); }, &count);
  CHECK(thread != nullptr);
  bp_thread_join(thread);
  LONGS_EQUAL(1, count.load());
  LONGS_EQUAL(1, bp_thread_join_or_leave(thread, 1000));
}

TEST(PlanC, TheClockOfItsLoopIsTheTests) {
  boot();
  bp_loop* loop = bp_loop_of(its_context, 0);
  CHECK_EQUAL(appliance->now_ns(), bp_loop_now_ns(loop));
  appliance->advance(5);
  CHECK_EQUAL(appliance->now_ns(), bp_loop_look_at_clock(loop));
}

TEST(PlanC, KnowsTheLimitsOfAPath) {
  described.plan = [](void*, bp_plan* plan) {
    bp_plan_messages(plan, 0);
    return 0;
  };
  make();
  MessagePeer& ann = appliance->add_peer("ann");
  STRCMP_EQUAL("", appliance->boot("[store]\n").c_str());
  bp_endpoint* path = bp_connect_by_name(bp_shard_member(its_context, 0), "ann");
  CHECK(path != nullptr);
  const bp_limits limits = bp_limits_of(path);
  const std::string longest(limits.message_bytes_max, 'x');
  CHECK(limits.inline_bytes_max > 0 && limits.loan_header_bytes_max > 0);
  LONGS_EQUAL(BP_TOO_LONG, bp_am_send(path, 3, (longest + "x").data(), longest.size() + 1));
  LONGS_EQUAL(BP_DONE, bp_am_send(path, 3, longest.data(), longest.size()));
  LONGS_EQUAL(1, bp_has_room(path));
  STRCMP_EQUAL("shm", bp_provider_name(path));
  appliance->run();
  CHECK(ann.received.at(0).payload == longest);
}
