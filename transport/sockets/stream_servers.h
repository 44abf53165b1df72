// StreamServers: a StreamServer on each of several shards, which serve clients as one.
//
// Each has its own listeners, connections, counters and layers. A shard that is full gives new
// clients to another one, and one that alone listens at a socket spreads them (client_moves.h). On
// one shard it is a StreamServer, and costs nothing more. apps/boot/placed_server.h plans it.
//
//     servers.add<Echo>(options, moves, memory, arguments...);   for each shard, in create()
//     servers.at(i).add_listener(fd);
//     servers.at(i).start();                                     in start(), on the shard
//     servers.request_drain(), servers.is_drained(), servers.end()
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "platform/assert.h"
#include "platform/cache_line.h"
#include "transport/sockets/client_moves.h"
#include "transport/sockets/stream_server.h"

namespace bedplate {

// Threads: before the loops run, the one that sets it up; any for request_drain() and is_drained().
// Nothing is allocated but what StreamServer::create() allocates. Lifetime: as long as the loops of
// all shards run.
class StreamServers {
 public:
  StreamServers() noexcept = default;
  StreamServers(const StreamServers&) = delete;
  StreamServers& operator=(const StreamServers&) = delete;

  // The memory of one shard with `count` connections.
  template <typename Session>
  static constexpr uint64_t bytes_for(uint64_t count) noexcept {
    return sizeof(Place) + StreamServer::bytes_for<Session>(count);
  }

  // Makes the server of one more shard in `memory`, with as many connections as it holds, each with
  // a Session(arguments...); the rest as StreamServer::create(). `moves`: the shard's counters of
  // clients that move; nullptr: there is one shard. Requires: `memory` is aligned to a cache line;
  // all servers are added before the first one starts.
  template <typename Session, typename... Arguments>
  StreamServer& add(StreamServerOptions options, MoveCounters* moves, std::span<std::byte> memory,
                    Arguments&... arguments) noexcept {
    Place& place = add_place(&options, moves, memory);
    place.server.create<Session>(options, memory.subspan(sizeof(Place)), arguments...);
    return place.server;
  }
  uint32_t count() const noexcept { return count_; }
  // In the order in which they were added. Requires: `index` is below count().
  StreamServer& at(uint32_t index) noexcept;

  // As those of StreamServer, for all of them.
  void request_drain() noexcept;
  bool is_drained() const noexcept;
  // Closes clients that are on their way between shards. The last call: after the loops of all
  // shards have run, on any thread.
  void end() noexcept;

 private:
  // A shard's part, at the beginning of its memory.
  struct alignas(kCacheLineBytes) Place {
    StreamServer server;
    ClientMoves moves;
    bool has_moves = false;
    Place* next = nullptr;
  };

  Place& add_place(StreamServerOptions* options, MoveCounters* moves,
                   std::span<std::byte> memory) noexcept;

  Place* first_ = nullptr;
  Place* last_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace bedplate
