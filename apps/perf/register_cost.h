// `bedplate perf register`: it measures the cost of making a message's memory known to the device.
//
// Four ways: the pool's standing key; a copy into registered memory (a bounce buffer); registering
// for each message; a cache of registrations, which must be told when memory is unmapped. The
// latter two are here for comparison only; the runtime has neither.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/perf/perf_side.h"
#include "platform/result.h"

namespace bedplate {

inline constexpr uint64_t kRegisterBytesMax = 64 * kMiB;

struct RegisterCostOptions {
  std::string device = {};
  uint8_t port = 0;
  uint64_t count = 200;  // of each, of which the median is taken
  std::vector<uint64_t> sizes;
};

// Medians, for one message of `bytes`.
struct RegisterCost {
  uint64_t bytes = 0;
  double pool_ns = 0;       // the key of memory from the pool
  double bounce_ns = 0;     // memcpy into the bounce buffer
  double register_ns = 0;   // register and deregister
  double cache_hit_ns = 0;  // the same memory again
  // The memory was freed and mapped anew: the entry is dropped, the memory registered. The time to
  // unmap, map and touch it is not counted: it is the same without a cache.
  double cache_remapped_ns = 0;
  // How often a cache that was not told would have returned the registration of the earlier pages.
  uint64_t stale_count = 0;
};

struct RegisterCosts {
  PerfWay way;
  uint64_t count = 0;
  std::vector<RegisterCost> costs;
};

// In libbedplate-verbs.a (perf_verbs.h).
// Requires: once in the life of a process. Errors: no device, a size that is too large, no memory.
Result<RegisterCosts> measure_register_cost(const RegisterCostOptions& options);

void print_register_table(const RegisterCosts& costs);
void print_register_json(const RegisterCosts& costs);

}  // namespace bedplate
