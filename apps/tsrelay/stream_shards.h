// Decides which shard serves each stream of the relay.
//
// A stream that names its shard is served there. All others are spread over the shards of [tsrelay]
// by their planned loads (apps/services/home_shards.h), as far as a shard can serve them:
//
// - Processes reach the first shard alone, so a stream with readers goes there.
// - A socket on a port belongs to a shard where the port has a queue. All networks of a stream must
//   be on its shard.
// Threads: the main thread, in plan(). It allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/tsrelay/relay_settings.h"
#include "platform/result.h"

namespace bedplate {

struct Configuration;
class Service;

// The shard of each stream, as an index among [[shard]]. `relay`: the service of these settings. A
// network that no service provides is ignored: the plan of its sockets refuses it. Errors
// (kConfiguration): the first stream that no shard can serve.
Result<std::vector<uint32_t>> choose_stream_shards(const RelaySettings& settings,
                                                   const Configuration& configuration,
                                                   const Service& relay);

}  // namespace bedplate
