#include "apps/tsrelay/stream_shards.h"

#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "apps/configuration/configuration.h"
#include "apps/services/datagram_networks.h"
#include "apps/services/home_shards.h"
#include "platform/assert.h"
#include "transport/sockets/datagram_network.h"

namespace bedplate {
namespace {

using Shards = std::vector<uint32_t>;

constexpr uint32_t kShardOfProcesses = 0;  // the only one that processes reach

// The choice for each stream depends on these, too.
struct Surroundings {
  const Configuration& configuration;
  const Service& relay;
  Shards shards;  // for streams that name none
};

// The first network of the stream that is not on `shard`; empty: all are.
std::string missing_network(const Surroundings& around, const RelayStreamSettings& stream,
                            uint32_t shard) {
  std::set<std::string> names;
  for (const RelayLegSettings& leg : stream.legs) names.insert(leg.network);
  for (const RelayOutputSettings& output : stream.outputs) names.insert(output.network);
  names.erase("");  // the kernel's
  for (const std::string& name : names) {
    const auto network = find_datagram_network(around.configuration, around.relay, name);
    if (network != nullptr && !network->is_on(shard)) return name;
  }
  return "";
}

Result<Shards> named_shard(const Surroundings& around, const RelayStreamSettings& stream) {
  const uint32_t shard = *stream.shard;
  const std::string missing = missing_network(around, stream, shard);
  if (missing.empty()) return Shards{shard};
  BP_ASSERT(shard < around.configuration.shards.size());
  return refused(stream, "shard = \"" + around.configuration.shards[shard].name + "\"",
                 ("its network " + missing + " has no queue on this shard").c_str(),
                 ("add it to shards of the [[port]] " + missing + ", or choose another").c_str());
}

Result<Shards> candidates_of(const Surroundings& around, const RelayStreamSettings& stream) {
  if (stream.shard.has_value()) return named_shard(around, stream);
  Shards candidates;
  bool is_any_reachable = false;
  for (const uint32_t shard : around.shards) {
    if (stream.readers > 0 && shard != kShardOfProcesses) continue;
    is_any_reachable = true;
    if (missing_network(around, stream, shard).empty()) candidates.push_back(shard);
  }
  if (!candidates.empty()) return candidates;
  if (!is_any_reachable) {
    return refused(stream, "readers",
                   "processes reach the first shard alone, and shards in [tsrelay] lacks it",
                   "add it there, or set shard in the [[tsrelay.stream]]");
  }
  return refused(stream, "network", "no shard that may serve it has queues of all its networks",
                 "add such a shard to shards of each [[port]] that it names");
}

}  // namespace

Result<std::vector<uint32_t>> choose_stream_shards(const RelaySettings& settings,
                                                   const Configuration& configuration,
                                                   const Service& relay) {
  Surroundings around = {configuration, relay, settings.shards};
  if (around.shards.empty()) {
    around.shards.resize(configuration.shards.size());
    std::iota(around.shards.begin(), around.shards.end(), 0U);
  }
  std::vector<HomeWish> wishes;
  for (const RelayStreamSettings& stream : settings.streams) {
    BP_TRY_ASSIGN(auto candidates, candidates_of(around, stream));
    wishes.push_back({.candidates = std::move(candidates), .load = stream.load_bytes()});
  }
  return choose_homes(wishes);
}

}  // namespace bedplate
