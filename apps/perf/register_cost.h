// `bedplate perf register` measures the cost of making a message's memory known to the device.
//
// It compares four methods: the pool's standing key; a copy into registered memory (a bounce
// buffer); registering for each message; a cache of registrations, which must be told when memory
// is unmapped. The last two are only for comparison; the runtime has neither.
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
  uint64_t count = 200;  // measurements of each cost; the median is its result
  std::vector<uint64_t> sizes;
};

// Medians, for one message of `bytes`.
struct RegisterCost {
  uint64_t bytes = 0;
  double pool_ns = 0;       // looking up the key of pool memory
  double bounce_ns = 0;     // memcpy into the bounce buffer
  double register_ns = 0;   // register and deregister
  double cache_hit_ns = 0;  // the same memory again
  // The memory was freed and mapped anew: drops the entry and registers the memory. The time to
  // unmap, map and touch it is not counted: it is the same without a cache.
  double cache_remapped_ns = 0;
  // How often a cache without the notice of munmap would have returned the registration of the
  // earlier pages.
  uint64_t stale_count = 0;
};

struct RegisterCosts {
  PerfConnection connection;
  uint64_t count = 0;
  std::vector<RegisterCost> costs;
};

// In libbedplate-verbs.a (perf_verbs.h). Requires: called once in a process, with a size and a
// count above 0. Errors: no device, a size that is too large, no memory.
Result<RegisterCosts> measure_register_cost(const RegisterCostOptions& options);

void print_register_table(const RegisterCosts& costs);
void print_register_json(const RegisterCosts& costs);

}  // namespace bedplate
