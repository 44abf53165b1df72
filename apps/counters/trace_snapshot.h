// The last requests that a counters file has, with the stations that each has passed.
//
// As with its counters (counters_snapshot.h), only a copy is judged: nothing is read beyond its
// end. Shards write on meanwhile, so each ring is copied four times: a record of the third copy
// counts if the second and the fourth have the same number for it. A record that changed in between
// is left out. So is a request that ended after the first copy was begun: one that ended before it
// could have been missed, and the next look has both.
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
  uint64_t after_ns = 0;  // the first station
};

struct SeenRequest {
  std::string shard;
  std::string service;
  std::string kind;       // its number, if it has no name
  std::string subject;    // "", if it has none
  uint64_t number = 0;    // of those of its shard: later ones have higher ones
  uint64_t begin_ns = 0;  // monotonic_ns() at the first station
  uint64_t handle = 0;
  uint32_t bytes = 0;
  std::vector<SeenStation> stations;  // that it has passed, in their order; the first at 0

  uint64_t total_ns() const noexcept { return stations.back().after_ns; }
  // The station that it took longest to come to: an index, 0 if there is but one.
  size_t slowest() const noexcept;
};

// The last number that was told, by shard.
using ToldRequests = std::map<std::string, uint64_t>;

class TraceSnapshot {
 public:
  // Rings and their tables are no longer than this: a file that claims more is refused.
  static constexpr uint64_t kBytesMax = uint64_t{512} << 20;

  // Copies what `fd` has now beyond `told`; `path` is for messages. Errors (kSystem): those of
  // CountersSnapshot; nothing is traced.
  static Result<TraceSnapshot> take(int fd, const std::string& path, const ToldRequests& told = {});

  // The requests of all shards, those of each in the order in which they ended; there is a gap only
  // where the ring was written over.
  const std::vector<SeenRequest>& requests() const noexcept { return requests_; }
  // The services that are traced, whether they had requests or not.
  const std::vector<std::string>& services() const noexcept { return services_; }

 private:
  friend class TraceTables;

  std::vector<SeenRequest> requests_;
  std::vector<std::string> services_;
};

}  // namespace bedplate
