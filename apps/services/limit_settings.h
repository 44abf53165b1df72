// The keys of a limit (transport/loop/request_limit_datapath.h): the same in each table `limits` of
// any service, and in its method `limit` (limit_methods.h). And [[NAME.listener]], the limits of
// the listeners of the service NAME.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/units.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/loop/token_bucket.h"
#include "transport/sockets/socket_address.h"

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
// small one would wait for seconds.
inline constexpr LimitKey kLimitKeys[] = {
    {"read_rate", &LimitRates::read_rate, false, true, 1, 1'000'000'000,
     "The most reads in a second."},
    {"read_rate_bytes", &LimitRates::read_rate_bytes, true, true, 4 * kKiB, TokenBucket::kRateMax,
     "The most bytes read in a second."},
    {"write_rate", &LimitRates::write_rate, false, true, 1, 1'000'000'000,
     "The most writes, and other requests that are no reads, in a second."},
    {"write_rate_bytes", &LimitRates::write_rate_bytes, true, true, 4 * kKiB, TokenBucket::kRateMax,
     "The most bytes written in a second."},
    {"burst_ms", &LimitRates::burst_ms, false, false, 1, TokenBucket::kBurstNsMax / kNsPerMs,
     "After a pause, the requests of this much time may go on at once; at least one may."},
};

void describe(ConfigurationTable& table, LimitRates& rates);

// A [[NAME.listener]]: the limit of an address of `listen`.
struct ListenerSettings {
  std::string address;
  LimitRates limits = {};
};

void describe(ConfigurationTable& table, ListenerSettings& settings);

// Describes [[NAME.listener]] in the table of a service, whose keys `listen` and `image_listen`
// have these variables, and checks that each listener of it listens. Ownership: all outlive
// `table`.
void describe_listeners(ConfigurationTable& table, std::vector<ListenerSettings>* listeners,
                        const std::vector<SocketAddress>& listen,
                        const std::vector<SocketAddress>& image_listen);

// The limits of the listener at `address`; no rates, if `listeners` has none of it.
LimitRates limits_of(const std::vector<ListenerSettings>& listeners, std::string_view address);

}  // namespace bedplate
