// The last requests in a counters file, with the stations that each has passed.
//
// As with counters (counters_snapshot.h), only a copy is checked, and nothing is read beyond its
// end. Shards keep writing meanwhile, so each ring is copied four times. A record of the third copy
// is valid if the second and the fourth have the same number for it; a record that changed in
// between is left out. A request newer than all requests of the first copy is left out, too: the
// second copy could lack another one that ended before it. The next snapshot has both.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/counters/counters_format.h"
#include "platform/result.h"

namespace bedplate {

struct SeenStation {
  std::string name;
  uint64_t after_ns = 0;  // since the first station, in steps of 2^kTraceStepLog2
};

struct SeenRequest {
  std::string shard;
  std::string service;
  std::string kind;       // its number if it has no name
  std::string subject;    // "": it has none
  uint64_t number = 0;    // grows with each request of a shard
  uint64_t begin_ns = 0;  // monotonic_ns() at the first station
  uint64_t handle = 0;
  uint32_t bytes = 0;
  std::vector<SeenStation> stations;  // the passed stations, in order; the first at 0

  uint64_t total_ns() const noexcept { return stations.back().after_ns; }
  // The index of the station that took longest to reach from the one before; 0 if there is only one
  // station, or all have the same time.
  size_t slowest() const noexcept;
};

// By shard: the number of the last request that was shown.
using ToldRequests = std::map<std::string, uint64_t>;

class TraceSnapshot {
 public:
  // The most bytes of rings and their tables: a file that claims more is refused.
  static constexpr uint64_t kBytesMax = uint64_t{512} << 20;

  // Copies the present requests of `fd` that are newer than `told`; `path` is for messages. Errors
  // (kSystem): those of CountersSnapshot; nothing is traced; the traces exceed kBytesMax.
  static Result<TraceSnapshot> take(int fd, const std::string& path, const ToldRequests& told = {});

  // The requests of all shards, those of one shard in the order in which they ended. Numbers are
  // missing only if the ring was overwritten.
  const std::vector<SeenRequest>& requests() const noexcept { return requests_; }
  // The traced services, with or without requests.
  const std::vector<std::string>& services() const noexcept { return services_; }

 private:
  friend class TraceTables;

  std::vector<SeenRequest> requests_;
  std::vector<std::string> services_;
};

}  // namespace bedplate
