// The description of the requests that a service traces (ServicePlan::trace), and of all traces in
// the counters file: a ring for each shard, and the meaning of its records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/version.h"

namespace bedplate {

// Words have 1 to 47 bytes of a-z, 0-9 and _, and are separated by "|"; at most 159 bytes in all.
struct TraceDescription {
  std::string kinds;     // names of the kinds 0, 1, ...: "read|write"
  std::string stations;  // 2 to 9, in the order of passing: "received|stored|sent"
  std::vector<std::string> subjects = {};  // names of 0, 1, ...: volumes, streams; 63 bytes each
};

// The traces of a whole appliance.
struct TraceShape {
  struct Source {
    std::string service;
    TraceDescription description;
  };
  uint32_t record_count = 0;  // of each ring; 0: no traces
  std::vector<std::string> shards;
  std::vector<Source> sources;
};

}  // namespace bedplate
