// The results of `bedplate perf register`, as text and as JSON.
#include <cinttypes>
#include <cstdio>

#include "apps/perf/perf_report.h"
#include "apps/perf/register_cost.h"
#include "apps/program/json_output.h"

namespace bedplate {

void print_register_table(const RegisterCosts& costs) {
  std::printf("the cost of preparing a message's memory for sending, median of %" PRIu64
              ", in us\n",
              costs.count);
  print_connection(costs.connection, "");
  std::printf("\n%10s %10s %14s %14s %14s %16s\n", "bytes", "pool key", "bounce copy",
              "register each", "cache, hit", "cache, remapped");
  for (const RegisterCost& cost : costs.costs) {
    std::printf("%10" PRIu64 " %10.4f %14.3f %14.3f %14.4f %16.3f\n", cost.bytes,
                cost.pool_ns / 1e3, cost.bounce_ns / 1e3, cost.register_ns / 1e3,
                cost.cache_hit_ns / 1e3, cost.cache_remapped_ns / 1e3);
  }
  uint64_t stale_count = 0;
  for (const RegisterCost& cost : costs.costs) stale_count += cost.stale_count;
  std::printf("\nremapped %" PRIu64 " times: a cache that does not learn of the unmapping "
              "would have returned %" PRIu64 " times\nthe registration of freed pages\n",
              costs.count * costs.costs.size(), stale_count);
}

void print_register_json(const RegisterCosts& costs) {
  JsonValue json = {{"device", costs.connection.device},
                    {"pool_bytes", costs.connection.pool_bytes},
                    {"page_bytes", page_bytes(costs.connection.page)},
                    {"count", costs.count},
                    {"results", JsonValue::array()}};
  for (const RegisterCost& cost : costs.costs) {
    json["results"].push_back({{"bytes", cost.bytes},
                               {"pool_key_ns", cost.pool_ns},
                               {"bounce_copy_ns", cost.bounce_ns},
                               {"register_ns", cost.register_ns},
                               {"cache_hit_ns", cost.cache_hit_ns},
                               {"cache_remapped_ns", cost.cache_remapped_ns},
                               {"stale_count", cost.stale_count}});
  }
  print_json(json);
}

}  // namespace bedplate
