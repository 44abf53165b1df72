// The interface between the runtime and services: the plans that a service may make, the order of
// the calls, and the errors of a defective service.
#include "apps/services/service.h"

#include <stdexcept>
#include <string>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/peers.h"
#include "apps/boot/preflight.h"
#include "apps/boot/service_context.h"
#include "apps/boot/shard.h"
#include "apps/control/control_service.h"
#include "apps/services/service_calls.h"
#include "apps/services/service_plan.h"
#include "platform/cpu.h"
#include "tests/apps/boot/service_rig.h"
#include "tests/support/pool_fixture.h"
#include "transport/sockets/datagram_network.h"
#include "transport/vfio/vfio_pool.h"

#include "CppUTest/TestHarness.h"
#include "apps/boot/loaded_configuration.h"

using namespace bedplate;
using namespace bedplate::service_rig;

namespace {

struct NoUnit {
  Counter hits;
};
void describe(CounterTable& table, NoUnit& counters) {
  table.counter("misses", counters.hits, "", "Gets that found none.");
}
struct ManyWords {
  Counter misses;
};
void describe(CounterTable& table, ManyWords& counters) {
  table.state("misses", counters.misses, std::string(160, 'a').c_str(), "What they are.");
}
struct NoHelp {
  Counter hits;
};
void describe(CounterTable& table, NoHelp& counters) {
  table.counter("misses", counters.hits, "requests", "");
}
struct BadName {
  Counter hits;
};
void describe(CounterTable& table, BadName& counters) {
  table.counter("hit rate", counters.hits, "requests", "Gets that found a value.");
}
struct SameName {
  Counter hits;
};
void describe(CounterTable& table, SameName& counters) {
  table.counter("hits", counters.hits, "requests", "Once more.");
}
struct Elsewhere {
  Counter hits;
};
Counter elsewhere;
void describe(CounterTable& table, Elsewhere&) {
  table.counter("misses", elsewhere, "requests", "Of nobody.");
}

struct AtAGlance {
  Counter hits;
  Counter level;
  Counter flags;
};
template <int kCase>
struct BadColumn : AtAGlance {};
template <int kCase>
void describe(CounterTable& table, BadColumn<kCase>& c) {
  constexpr const char* kHeadings[] = {"sixteen letters.", "a \"heading\"", "requests", "requests"};
  CounterDescription& misses = table.counter("misses", c.hits, "requests", "Gets that found none.");
  misses.at_a_glance(kHeadings[kCase]);
  if (kCase == 2) table.gauge("level", c.level, "requests", "A level.").at_a_glance("requests");
  if (kCase == 3) table.counter("sent", c.level, "bytes", "Bytes.").at_a_glance("requests");
}
void describe(CounterTable& table, AtAGlance& c) {
  table.flags("misses", c.flags, "a|b", "What it has.");
  table.counter("hits", c.hits, "requests", "Gets that found a value.").at_a_glance("requests");
  table.gauge("level", c.level, "items", "A level.").at_a_glance("fifteen letters");
}

// A network for sockets on the second shard only.
struct TestNetwork final : DatagramNetwork {
  Result<void> plan_socket(uint32_t shard, const DatagramShape& shape) override {
    Error error;
    if (shard != 1) return error.set_answer("there is no queue").set_cure("take another shard");
    planned.push_back(shape.buffer_count);
    return {};
  }
  Result<DatagramSocket*> make_socket(uint32_t, const DatagramShape&) override { return Error{}; }

  std::vector<uint32_t> planned;
};

}  // namespace

TEST_GROUP_BASE(Service, service_rig::ServiceBodies){};

// ---- Its table ----

TEST(Service, RunsWhereTheConfigurationHasItsTable) {
  std::string problem;
  auto read = parse("[relay]\nbytes = \"8 KiB\"\n[cache]\n", &problem);
  STRCMP_EQUAL("", problem.c_str());
  LONGS_EQUAL(2, read->services.size());
  POINTERS_EQUAL(&relay, read->services[0]);  // in the program's order, not the alphabet's
  POINTERS_EQUAL(&cache, read->services[1]);
  CHECK_EQUAL(8 * kKiB, relay.bytes);
  CHECK_EQUAL(64 * kKiB, cache.bytes);
  read = parse("[relay]\n", &problem);
  LONGS_EQUAL(1, read->services.size());
  POINTERS_EQUAL(&relay, read->services[0]);
}

TEST(Service, MayHaveItsTableSeveralTimes) {
  relay.table_max = 2;
  std::string problem;
  auto read = parse("[[relay]]\nbytes = \"8 KiB\"\n[[relay]]\nbytes = \"12 KiB\"\n", &problem);
  STRCMP_EQUAL("", problem.c_str());
  LONGS_EQUAL(1, read->services.size());  // it runs once
  CHECK_EQUAL(12 * kKiB, relay.bytes);    // described for each table, in their order
  parse("[[relay]]\n[[relay]]\n[[relay]]\n", &problem);
  STRCMP_CONTAINS("[[relay]] number 3 is too many; expected 1..2 of them", problem.c_str());
  parse("[relay]\n", &problem);
  STRCMP_CONTAINS("expected [[relay]], once or more", problem.c_str());
}

TEST(Service, ItsTableIsReadAsStrictlyAsTheRuntimes) {
  std::string problem;
  CHECK(!parse("[cache]\nbites = 4096\n", &problem));
  STRCMP_EQUAL("f:9:1: unknown key \"bites\"; did you mean \"bytes\"? [cache] may have: bytes, "
               "shard",
               problem.c_str());
  CHECK(!parse("[cache]\nshard = \"far\"\n", &problem));
  STRCMP_EQUAL("f:9:9: no shard has the name \"far\"; expected one of: main", problem.c_str());
}

TEST(Service, ATableOfOneThatIsNotLinkedInIsNamedAsSuch) {
  std::string problem;
  CHECK(!parse("[ledger]\nbytes = 1\n", &problem));
  STRCMP_EQUAL("f:8:2: unknown table \"ledger\": no service of this program has it; the file may "
               "have: [appliance], [pool], [alloc], [[limit]], [event_loop], [[shard]], [[group]], "
               "[[process]], [messages], [verbs], [init], [[network]], [watchdog], [crash], "
               "[relay], [cache]",
               problem.c_str());
  CHECK(!parse("[cahe]\nbytes = 1\n", &problem));
  STRCMP_CONTAINS("did you mean \"cache\"? ", problem.c_str());
}

TEST(Service, TwoOfOneNameAreRefused) {
  relay.own_name = "cache";
  std::string problem;
  CHECK(!parse("[cache]\n", &problem));
  STRCMP_EQUAL("describing the table of the service cache: the runtime or another service already "
               "uses this name; this is a defect of the program: each service needs a name of its "
               "own",
               problem.c_str());
  relay.own_name = "pool";
  CHECK(!parse("[cache]\n", &problem));
}

// ---- Its plan ----

TEST(Service, ItsMemoryIsInThePlan) {
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  const SegmentPlan& last = made.value().pool.segments.back();
  STRCMP_EQUAL("cache", last.owner.text);
  STRCMP_EQUAL("memory:cache", last.carves[0].owner.text);
  CHECK_EQUAL(64 * kKiB, last.carves[0].bytes);
}

TEST(Service, WhatServicesNeedIsAddedUp) {
  const auto say = [](uint32_t count) {
    return [count](ServicePlan& asked) {
      asked.connections(0, count, "clients");
      asked.timers(1, count);
      asked.sources(1, 1);
      asked.watches(0, count);
      asked.questions(1, count);
      asked.questions(1, 1);
      asked.heap(kMiB);
      asked.capability(12);
      asked.vfio_device("0000:00:0" + std::to_string(count % 8) + ".0");
      asked.counters<CacheCounters>("gets");
      return Result<void>{};
    };
  };
  cache.to_plan = say(3);
  relay.to_plan = say(40);
  configuration.services = {&cache, &relay};
  const uint64_t pool_bytes = configuration.pool.bytes;
  configuration.pool.bytes = boot_segment_bytes() + 18 * kMiB;
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  const AppliancePlan& plan = made.value();
  LONGS_EQUAL(43, plan.needs_on(0).connections);
  LONGS_EQUAL(0, plan.needs_on(1).connections);
  LONGS_EQUAL(43, plan.needs_on(1).timers);
  LONGS_EQUAL(2, plan.needs_on(1).sources);
  LONGS_EQUAL(43, plan.needs_on(0).watches);
  const ShardPlan on_first = plan.shard_plan(0, "main");
  LONGS_EQUAL(43, on_first.planned(ShardItem::kSockets));
  LONGS_EQUAL(0, on_first.planned(ShardItem::kTimers));
  CHECK(on_first.allows(ShardItem::kWatches, heap_owner_of(cache), 3));
  CHECK_FALSE(on_first.allows(ShardItem::kWatches, heap_owner_of(cache), 4));
  CHECK(on_first.allows(ShardItem::kWatches, heap_owner_of(relay), 40));
  LONGS_EQUAL(0, plan.services[1].shards[0].questions);
  LONGS_EQUAL(41, plan.services[1].shards[1].questions);  // each service has its own
  LONGS_EQUAL(40, plan.services[1].descriptors);
  STRCMP_EQUAL("clients in [relay]", plan.services[1].descriptor_keys.c_str());
  CHECK(plan.vfio_devices() == (std::vector<std::string>{"0000:00:03.0", "0000:00:00.0"}));
  CHECK_EQUAL(uint64_t{1} << 12, plan.capabilities());
  const size_t runtime_count = plan.runtime_counters.size();
  LONGS_EQUAL(runtime_count + 2, plan.counters().size());
  STRCMP_EQUAL("", plan.counters()[runtime_count - 1].owner.c_str());
  STRCMP_EQUAL("relay", plan.counters()[runtime_count + 1].owner.c_str());
  // The heap must hold the services' demands in addition to its own minimum.
  configuration.pool.bytes -= kMiB;
  STRCMP_CONTAINS("heap needs 18874368 bytes", refusal());
  configuration.pool.bytes = pool_bytes;
}

TEST(Service, AThreadWithSocketsIsInThePlan) {
  cache.to_plan = [](ServicePlan& asked) {
    asked.socket_thread(5, "clients");
    return Result<void>{};
  };
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  const ServiceNeeds& needs = made.value().services[0];
  CHECK(needs.has_socket_thread && needs.threads == 1);
  LONGS_EQUAL(5 + 2, needs.descriptors);  // of the loop, and of epoll
}

TEST(Service, ALimitMayNameItsHeapOwner) {
  configuration.limits = {{"heap:cache", kMiB}};
  STRCMP_EQUAL("", refusal());
  configuration.limits = {{"heap:relay", kMiB}};
  STRCMP_CONTAINS("this configuration has no such owner; owner in [[limit]] may be: heap, "
                  "heap:runtime, heap:cache",
                  refusal());
}

// ---- Defects of a service, named ----

TEST(Service, APlanThatMakesNoSenseIsRefusedByName) {
  const std::vector<CarvePlan> one = {{"a", 64}};
  const auto in_segment = [&](std::vector<CarvePlan> carves) {
    return refusal([carves](ServicePlan& asked) { asked.segment("cache", carves, {}); });
  };
  STRCMP_EQUAL("cache: planning the segment cache: it has no carve; this is a defect of the "
               "service",
               in_segment({}));
  STRCMP_CONTAINS("the carve a has 65 bytes, not a multiple of 64", in_segment({{"a", 65}}));
  STRCMP_CONTAINS("the carve a has 0 bytes, not a multiple of 64", in_segment({{"a", 0}}));
  STRCMP_CONTAINS("the carve a appears twice", in_segment({{"a", 64}, {"a", 64}}));
  STRCMP_CONTAINS("cache: planning the segment more: the carve a is planned already, in cache",
                  refusal([one](ServicePlan& asked) {
                    asked.segment("cache", one, {});
                    asked.segment("more", one, {});
                  }));
  const char* no_name =
      "cache: planning a segment: the name of its owner, or of a carve's, is empty or has control "
      "characters; this is a defect of the service";
  STRCMP_EQUAL(no_name, refusal([one](ServicePlan& asked) { asked.segment("", one, {}); }));
  STRCMP_EQUAL(no_name, in_segment({{"a\n", 64}}));
  STRCMP_EQUAL("cache: planning heap memory for an owner: it is not called heap:NAME; this is a "
               "defect of the service: its own is heap:cache",
               refusal([](ServicePlan& asked) { asked.kept_heap("cache", kMiB, 1); }));
  STRCMP_CONTAINS("planning the segment cache: it is planned twice",
                  refusal([one](ServicePlan& asked) {
                    asked.segment("cache", one, {});
                    asked.segment("cache", {{"b", 64}}, {});
                  }));
  STRCMP_CONTAINS("planning the segment heap: it is planned twice",
                  refusal([one](ServicePlan& asked) { asked.segment("heap", one, {}); }));
  STRCMP_CONTAINS("cache: planning connections on shard number 2: the configuration has 2",
                  refusal([](ServicePlan& asked) { asked.connections(2, 1, "clients"); }));
  STRCMP_CONTAINS("cache: planning the PCI device 03:00.0: this is not a PCI address; write it as "
                  "lspci -D does: \"0000:03:00.0\"",
                  refusal([](ServicePlan& asked) { asked.vfio_device("03:00.0"); }));
  const auto tracing = [&](const TraceDescription& description) {
    return refusal([description](ServicePlan& asked) { asked.trace(description); });
  };
  STRCMP_EQUAL("", tracing({"get", "1|2|3|4|5|6|7|8|9"}));
  STRCMP_CONTAINS("cache: planning its traces: its kinds are \"\"; this is a defect",
                  tracing({"", "received|sent"}));
  STRCMP_CONTAINS("its kinds are \"get||put\"", tracing({"get||put", "received|sent"}));
  STRCMP_CONTAINS("its stations are \"received\"", tracing({"get", "received"}));
  STRCMP_CONTAINS("its stations are ", tracing({"get", "1|2|3|4|5|6|7|8|9|10"}));
  STRCMP_CONTAINS("its stations are \"received|Sent\"", tracing({"get", "received|Sent"}));
  STRCMP_CONTAINS("its stations are ", tracing({"get", std::string(158, 'a') + "|b"}));
  STRCMP_CONTAINS("it has 65537 subjects",
                  tracing({"get", "1|2", std::vector<std::string>(65537)}));
  STRCMP_CONTAINS("it is planned already", refusal([](ServicePlan& asked) {
                    asked.trace({"get", "1|2"});
                    asked.trace({"get", "1|2"});
                  }));
  STRCMP_CONTAINS("cache: planning the addresses of listen: they are planned already",
                  refusal([](ServicePlan& asked) {
                    asked.listen("listen", {});
                    asked.listen("listen", {});
                  }));
}

TEST(Service, ItsDatagramSocketsAreInThePlan) {
  cache.to_plan = [](ServicePlan& asked) {
    asked.datagram_socket(1, "in", {.buffer_count = 10, .buffer_bytes = 2048});
    asked.datagram_socket(1, "out", {.buffer_count = 1, .buffer_bytes = 64});
    return Result<void>{};
  };
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  const SegmentPlan& last = made.value().pool.segments.back();
  STRCMP_EQUAL("datagrams-1:cache", last.owner.text);
  LONGS_EQUAL(2, last.carves.size());
  STRCMP_EQUAL("datagrams-1-in:cache", last.carves[0].owner.text);
  CHECK_EQUAL(20480, last.carves[0].bytes);
  LONGS_EQUAL(2, made.value().needs_on(1).watches);
  LONGS_EQUAL(2, made.value().services[0].descriptors);
  STRCMP_EQUAL(" (cache)", made.value().socket_users(1).c_str());
  STRCMP_EQUAL("", made.value().socket_users(0).c_str());
}

TEST(Service, DatagramSocketsThatMakeNoSenseAreRefusedByName) {
  const auto of = [&](const DatagramShape& shape) {
    return refusal([shape](ServicePlan& asked) { asked.datagram_socket(0, "in", shape); });
  };
  STRCMP_EQUAL("cache: planning the datagram socket in: it can have 1..1048576 buffers; this is a "
               "defect "
               "of the service",
               of({.buffer_count = 0}));
  STRCMP_CONTAINS("a buffer must have 64..65536 bytes, a multiple of 64",
                  of({.buffer_bytes = 100}));
  STRCMP_CONTAINS("cache: planning the datagram socket in on shard number 2",
                  refusal([](ServicePlan& asked) { asked.datagram_socket(2, "in", {}); }));
  STRCMP_CONTAINS("cache: planning the datagram socket in: it is planned already",
                  refusal([](ServicePlan& asked) {
                    asked.datagram_socket(0, "in", {});
                    asked.datagram_socket(1, "in", {});
                  }));
}

TEST(Service, ItsDatagramSocketsMayBeOnTheNetworkOfAnother) {
  TestNetwork network;
  relay.network = &network;
  configuration.services = {&relay, &cache};  // a service that others use comes first
  std::vector<uint32_t> known;
  relay.to_plan = [&](ServicePlan&) {
    known = network.planned;
    return Result<void>{};
  };
  cache.to_plan = [](ServicePlan& asked) {
    asked.datagram_socket(1, "in", {.buffer_count = 10, .buffer_bytes = 2048}, "wan");
    return Result<void>{};
  };
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  LONGS_EQUAL(1, known.size());  // it knows the demand when it plans
  LONGS_EQUAL(10, known[0]);
  LONGS_EQUAL(2, made.value().pool.segments.size());  // boot and heap: the network has the buffers
  LONGS_EQUAL(0, made.value().needs_on(1).watches);
  LONGS_EQUAL(0, made.value().services[1].descriptors);
  STRCMP_EQUAL("cache", made.value().services[1].name.c_str());
}

TEST(Service, ANetworkThatCannotBeHadIsSaidByName) {
  TestNetwork network;
  relay.network = &network;
  configuration.services = {&relay, &cache};
  relay.to_plan = [](ServicePlan&) { return Result<void>{}; };
  STRCMP_EQUAL("cache: planning the datagram socket in: this configuration has no network lan; "
               "name an existing one, such as a [[port]], or none to use the kernel's network",
               refusal([](ServicePlan& asked) { asked.datagram_socket(1, "in", {}, "lan"); }));
  STRCMP_EQUAL("cache: planning the datagram socket in: there is no queue; take another shard",
               refusal([](ServicePlan& asked) { asked.datagram_socket(0, "in", {}, "wan"); }));
  STRCMP_CONTAINS("it is planned already", refusal([](ServicePlan& asked) {
                    asked.datagram_socket(1, "in", {}, "wan");
                    asked.datagram_socket(1, "in", {});
                  }));
}

TEST(Service, CountersThatMakeNoSenseAreRefusedByName) {
  const std::string prefix = "cache: planning the counter misses: ";
  STRCMP_CONTAINS((prefix + "a counter needs a unit of 1..15 bytes").c_str(),
                  refusal([](ServicePlan& asked) { asked.counters<NoUnit>("gets"); }));
  STRCMP_CONTAINS((prefix + "a counter needs a help sentence of 1..159 bytes").c_str(),
                  refusal([](ServicePlan& asked) { asked.counters<NoHelp>("gets"); }));
  STRCMP_CONTAINS(
      (prefix + "the words of a state or of flags have at most 159 bytes together").c_str(),
      refusal([](ServicePlan& asked) { asked.counters<ManyWords>("gets"); }));
  STRCMP_CONTAINS((prefix + "it does not lie in its struct").c_str(),
                  refusal([](ServicePlan& asked) { asked.counters<Elsewhere>("gets"); }));
  STRCMP_CONTAINS((prefix + "a column heading has 1..15 bytes, without quotes").c_str(),
                  refusal([](ServicePlan& asked) { asked.counters<BadColumn<0>>("gets"); }));
  STRCMP_CONTAINS((prefix + "a column heading has 1..15 bytes, without quotes").c_str(),
                  refusal([](ServicePlan& asked) { asked.counters<BadColumn<1>>("gets"); }));
  STRCMP_CONTAINS((prefix + "another counter of its column has a different kind or unit").c_str(),
                  refusal([](ServicePlan& asked) { asked.counters<BadColumn<2>>("gets"); }));
  STRCMP_CONTAINS((prefix + "another counter of its column has a different kind or unit").c_str(),
                  refusal([](ServicePlan& asked) { asked.counters<BadColumn<3>>("gets"); }));
  STRCMP_CONTAINS((prefix + "a text or flags cannot have a column").c_str(),
                  refusal([](ServicePlan& asked) {
                    CounterDescription flags{"misses", CounterKind::kFlags, "flags", "It has."};
                    flags.at_a_glance("flags");
                    asked.counters({"cache", "gets", "", sizeof(AtAGlance), {flags}});
                  }));
  STRCMP_EQUAL("", refusal([](ServicePlan& asked) { asked.counters<AtAGlance>("gets"); }));
  STRCMP_CONTAINS("cache: planning the counter hit rate: a name has 1..47 characters of a-z, 0-9 "
                  "and _",
                  refusal([](ServicePlan& asked) { asked.counters<BadName>("gets"); }));
  STRCMP_CONTAINS("cache: planning the counter hits: another one has this name",
                  refusal([](ServicePlan& asked) {
                    asked.counters<CacheCounters>("gets");
                    asked.counters<SameName>("more");
                  }));
  STRCMP_CONTAINS("cache: planning the counters gets of a: they are planned already",
                  refusal([](ServicePlan& asked) {
                    asked.counters<CacheCounters>("gets", "a");
                    asked.counters<CacheCounters>("gets", "a");
                  }));
  STRCMP_EQUAL("", refusal([](ServicePlan& asked) {
                 asked.counters<CacheCounters>("gets");
                 asked.counters<CacheCounters>("gets", "a");
                 asked.counters<CacheCounters>("gets", "b");
               }));
}

TEST(Service, ActivatedSocketsAreForOneOnly) {
  const auto say = [](ServicePlan& asked) {
    auto address = parse_socket_address("activation:");
    asked.listen("listen", {address.value()});
    return Result<void>{};
  };
  cache.to_plan = say;
  STRCMP_EQUAL("", refusal());
  relay.to_plan = say;
  configuration.services = {&cache, &relay};
  STRCMP_CONTAINS("several would: listen in [cache], listen in [relay]", refusal());
}

// ---- Its messages ----

TEST(Service, ItsMessagesHaveNumbersAndOneNameEach) {
  cache.to_plan = [](ServicePlan& asked) {
    asked.messages(1);
    asked.message("get");
    asked.message("put");
    return Result<void>{};
  };
  relay.to_plan = [](ServicePlan& asked) {
    asked.messages(1);
    asked.message("get");
    return Result<void>{};
  };
  configuration.services = {&cache, &relay};
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  LONGS_EQUAL(128, *made.value().message_names.find("cache.get"));
  LONGS_EQUAL(129, *made.value().message_names.find("cache.put"));
  LONGS_EQUAL(130, *made.value().message_names.find("relay.get"));
  CHECK_FALSE(made.value().has_shard_group);  // a single shard needs no group
  CHECK_FALSE(made.value().needs_on(0).has_messages);
  STRCMP_CONTAINS("giving the message \"cache.get\" a number: it has one already",
                  refusal([](ServicePlan& asked) {
                    asked.message("get");
                    asked.message("get");
                  }));
}

TEST(Service, ShardsThatTalkHaveAGroupOfTheirOwn) {
  cache.to_plan = [](ServicePlan& asked) {
    asked.messages(0);
    asked.messages(1);
    return Result<void>{};
  };
  auto made = plan_appliance(configuration);
  CHECK(made.ok());
  CHECK(made.value().has_shard_group);
  const SegmentPlan& last = made.value().pool.segments.back();
  STRCMP_EQUAL("shards", last.owner.text);
  STRCMP_EQUAL("members:shards", last.carves[0].owner.text);
  STRCMP_EQUAL("lanes:shards", last.carves[1].owner.text);
}

TEST(Service, WhatItThrowsEndsTheBootWithItsName) {
  const auto outcome = [this](const std::function<Result<void>()>& call) -> std::string {
    const auto called = call_service(cache, "creating", call);
    return called.ok() ? "" : format_error(called.error(), text, sizeof text);
  };
  STRCMP_EQUAL("cache: creating: it threw an exception: no luck; this is a defect of the service: "
               "functions that can fail must return an error",
               outcome([]() -> Result<void> { throw std::runtime_error("no luck"); }).c_str());
  STRCMP_EQUAL(
      "cache: opening the store: it is full; make room",
      outcome([] {
        return Result<void>(
            error_while("opening the store").set_answer("it is full").set_cure("make room"));
      }).c_str());
  STRCMP_EQUAL("", outcome([] { return Result<void>{}; }).c_str());
}

TEST(Service, WhatItsCallbacksThrowIsAProblemOfItsOwn) {
  struct Throwing final : TestService {
    Throwing() : TestService("cache") {}
    void describe(ConfigurationTable&) override { throw std::runtime_error("no keys"); }
    void preflight(std::vector<Error>*) override { throw std::runtime_error("no look"); }
    void methods(ControlMethods&) override { throw std::runtime_error("no method"); }
  } throwing;
  Service* const services[] = {&throwing};
  std::vector<Error> problems;
  CHECK(!parse_configuration("[appliance]\nname = \"a\"\n[pool]\nbytes = \"256 MiB\"\n[[shard]]\n"
                             "name = \"main\"\ncpu = 0\n[cache]\nbytes = 4096\n",
                             "f", services, &problems));
  LONGS_EQUAL(1, problems.size());
  STRCMP_CONTAINS("cache: describing its table: it threw an exception: no keys",
                  format_error(problems[0], text, sizeof text));
  CHECK(problems[0].kind == ErrorKind::kConfiguration);
  configuration.services = {&throwing};
  configuration.shards.resize(1);
  AppliancePlan plan;
  problems = preflight(configuration, plan);
  STRCMP_CONTAINS("cache: checking the machine: it threw an exception: no look",
                  format_error(problems.back(), text, sizeof text));
  RuntimeMethods runtime;
  ControlMethods methods;
  const auto added = add_all_methods(services, &runtime, &methods);
  CHECK(!added.ok());
  STRCMP_CONTAINS("cache: adding its control methods: it threw an exception: no method",
                  format_error(added.error(), text, sizeof text));
}

TEST(Service, InAnImageItMayListenElsewhere) {
  const auto planned = [this](bool is_in_image, bool has_other) {
    configuration.is_first_process = is_in_image;
    ServicePlan asked(configuration, cache);
    std::vector<SocketAddress> other;
    if (has_other) other.push_back(parse_socket_address("tcp:0.0.0.0:2").take());
    asked.listen("listen", {parse_socket_address("tcp:127.0.0.1:1").take()}, other,
                 {.encryption = Encryption::kAlways});
    return asked.take().value().listens[0].addresses[0].text();
  };
  STRCMP_EQUAL("tcp:127.0.0.1:1", planned(false, true).c_str());
  STRCMP_EQUAL("tcp:127.0.0.1:1", planned(true, false).c_str());
  STRCMP_EQUAL("tcp:0.0.0.0:2", planned(true, true).c_str());
}

TEST(Service, InClearItListensWhereNobodyElseReachesIt) {
  const auto said = [this](const char* address, const char* in_image, const ListenTerms& terms) {
    return std::string(refusal([=](ServicePlan& asked) {
      asked.listen("listen", {parse_socket_address(address).take()},
                   {parse_socket_address(in_image).take()}, terms);
    }));
  };
  const ListenTerms own_reason = {.local_only = {"others reach it", "close it"}};
  for (const char* local : {"tcp:127.0.0.1:1", "tcp:[::1]:1", "unix:/s", "activation:"}) {
    STRCMP_EQUAL("", said(local, local, {}).c_str());
    STRCMP_EQUAL("", said(local, local, own_reason).c_str());
  }
  for (const char* open : {"tcp:0.0.0.0:1", "tcp:[::]:1", "tcp:192.0.2.1:1", "tcp:[fd00::1]:1"}) {
    const auto refused = [open](const char* why) {
      return std::string("cache: planning to listen at ") + open + ": " + why;
    };
    const std::string in_clear =
        refused("other machines can reach it, and there is no TLS; listen at tcp:127.0.0.1:PORT or "
                "unix:PATH; or, in a trusted network, set plain_text = \"allowed\" in [cache]");
    STRCMP_EQUAL(in_clear.c_str(), said(open, "unix:/s", {}).c_str());
    STRCMP_EQUAL(in_clear.c_str(), said("unix:/s", open, {}).c_str());
    STRCMP_EQUAL("", said(open, open, {.encryption = Encryption::kOffered}).c_str());
    STRCMP_EQUAL("", said(open, open, {.encryption = Encryption::kAlways}).c_str());
    configuration.plain_text["cache"] = PlainText::kAllowed;
    STRCMP_EQUAL("", said(open, open, {}).c_str());
    STRCMP_EQUAL(refused("others reach it; close it").c_str(),
                 said(open, "unix:/s", own_reason).c_str());
    configuration.plain_text.clear();
  }
}

TEST(Service, WithoutTlsNobodyIsServedWherePlainTextIsRefused) {
  const auto said = [this](Encryption encryption) {
    return std::string(refusal([=](ServicePlan& asked) {
      asked.listen("listen", {parse_socket_address("unix:/s").take()}, {},
                   {.encryption = encryption, .tls_cure = "set tls_key in [cache]"});
    }));
  };
  configuration.plain_text["cache"] = PlainText::kRefused;
  STRCMP_EQUAL("cache: planning to listen, with plain_text = \"refused\" in [cache]: no client "
               "could be served: there is no TLS; set tls_key in [cache]",
               said(Encryption::kNone).c_str());
  STRCMP_EQUAL("", said(Encryption::kOffered).c_str());
}
