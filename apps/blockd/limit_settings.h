// The keys of a limit (block_limit_datapath.h): the same in [blockd.volume.limits],
// [blockd.tenant.limits] and [blockd.listener.limits], and in the method blockd.limit.
#pragma once

#include <cstdint>

#include "apps/blockd/block_limit_datapath.h"
#include "platform/units.h"
#include "transport/loop/token_bucket.h"

namespace bedplate {

class ConfigurationTable;

struct LimitKey {
  const char* name;
  uint64_t LimitRates::*value;
  bool is_size;   // in bytes
  bool is_limit;  // not the burst
  uint64_t min;
  uint64_t max;
  const char* help;
};

// A limit of bytes may be smaller than a request, which then goes in debt. But below 4 KiB/s even a
// single block would wait for seconds.
inline constexpr LimitKey kLimitKeys[] = {
    {"read_rate", &LimitRates::read_rate, false, true, 1, 1'000'000'000,
     "The most reads in a second."},
    {"read_rate_bytes", &LimitRates::read_rate_bytes, true, true, 4 * kKiB, TokenBucket::kRateMax,
     "The most bytes read in a second."},
    {"write_rate", &LimitRates::write_rate, false, true, 1, 1'000'000'000,
     "The most writes, flushes, trims and writes of zeroes in a second."},
    {"write_rate_bytes", &LimitRates::write_rate_bytes, true, true, 4 * kKiB, TokenBucket::kRateMax,
     "The most bytes written in a second."},
    {"burst_ms", &LimitRates::burst_ms, false, false, 1, TokenBucket::kBurstNsMax / kNsPerMs,
     "After a pause, the requests of this much time may go on at once; at least one may."},
};

void describe(ConfigurationTable& table, LimitRates& rates);

}  // namespace bedplate
