// A service with a plan that the test sets, and the configuration of its appliance.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/services/service.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/boot_segment.h"

#include "CppUTest/TestHarness.h"
#include "apps/boot/loaded_configuration.h"

namespace bedplate::service_rig {

struct CacheCounters {
  Counter hits;
};
inline void describe(CounterTable& table, CacheCounters& counters) {
  table.counter("hits", counters.hits, "requests", "Gets that found a value.");
}

struct TestService : Service {
  explicit TestService(const char* its_name) : own_name(its_name) {}
  const char* name() const noexcept override { return own_name; }
  void describe(ConfigurationTable& table) override {
    table.size("bytes", &bytes, 4096, kGiB).help("The size of this memory.");
    table.shard("shard", &shard).help("Where.");
  }
  Result<void> plan(ServicePlan& asked) override {
    if (to_plan) return to_plan(asked);
    asked.segment(own_name, {{OwnerName("memory", own_name), bytes}}, asked.placement(shard));
    return {};
  }

  uint32_t table_count_max() const noexcept override { return table_max; }
  DatagramNetwork* datagram_network(std::string_view wanted) noexcept override {
    return network != nullptr && wanted == "wan" ? network : nullptr;
  }

  const char* own_name;
  uint32_t table_max = 0;
  DatagramNetwork* network = nullptr;
  uint64_t bytes = 64 * kKiB;
  uint32_t shard = 0;
  std::function<Result<void>(ServicePlan&)> to_plan;
};

class ServiceBodies : public Utest {
 public:
  TestService cache{"cache"};
  TestService relay{"relay"};
  Configuration configuration;
  char text[1024];

  void setup() override {
    configuration.appliance.name = "demo";
    configuration.pool.bytes = boot_segment_bytes() + 64 * kMiB;
    configuration.pool.pages = PageWish::k4KiB;
    configuration.pool.heap_min_bytes = 16 * kMiB;
    configuration.shards = {{"main", 0}, {"other", 1}};
    configuration.services = {&cache};
  }

  // Returns why the plan is refused; "": it is not refused.
  const char* refusal() {
    const auto made = plan_appliance(configuration);
    if (made.ok()) return "";
    CHECK(made.error().kind == ErrorKind::kConfiguration);
    return format_error(made.error(), text, sizeof text);
  }
  const char* refusal(std::function<void(ServicePlan&)> say) {
    cache.to_plan = [say](ServicePlan& asked) {
      say(asked);
      return Result<void>{};
    };
    return refusal();
  }
  std::optional<Configuration> parse(const std::string& tables, std::string* problem) {
    Service* const services[] = {&relay, &cache};
    std::vector<Error> problems;
    auto read = parse_configuration("[appliance]\nname = \"a\"\n[pool]\nbytes = \"256 MiB\"\n"
                                    "[[shard]]\nname = \"main\"\ncpu = 0\n" +
                                        tables,
                                    "f", services, &problems);
    *problem = problems.empty() ? "" : format_error(problems[0], text, sizeof text);
    return read;
  }
};

}  // namespace bedplate::service_rig
