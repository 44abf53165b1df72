#include "transport/sockets/stream_servers.h"

namespace bedplate {

StreamServers::Place& StreamServers::add_place(StreamServerOptions* options, MoveCounters* moves,
                                               std::span<std::byte> memory) noexcept {
  BP_REQUIRE(options->loop != nullptr, "a server is added without a loop: StreamServers::add");
  BP_REQUIRE(reinterpret_cast<uintptr_t>(memory.data()) % kCacheLineBytes == 0 &&
                 memory.size() >= sizeof(Place),
             "the memory of a shard is too small, or not aligned to a cache line: "
             "StreamServers::bytes_for");
  BP_REQUIRE(first_ == nullptr || (first_->has_moves && moves != nullptr),
             "one of several servers has no counters of clients that move: StreamServers::add");
  auto* const place = new (memory.data()) Place;
  if (moves != nullptr) {
    place->has_moves = true;
    place->moves.create(*options->loop, *moves);
    if (last_ != nullptr) last_->moves.join(place->moves);  // in this order
    options->moves = &place->moves;
  }
  (last_ == nullptr ? first_ : last_->next) = place;
  last_ = place;
  ++count_;
  return *place;
}

StreamServer& StreamServers::at(uint32_t index) noexcept {
  BP_REQUIRE(index < count_, "server number %u is asked for, and there are %u: StreamServers::at",
             index, count_);
  Place* place = first_;
  while (index-- > 0) place = place->next;
  return place->server;
}

void StreamServers::request_drain() noexcept {
  for (Place* each = first_; each != nullptr; each = each->next) each->server.request_drain();
}

// A shard is not drained while a client is on its way from it, so none is between two shards once
// all are drained.
bool StreamServers::is_drained() const noexcept {
  for (const Place* each = first_; each != nullptr; each = each->next) {
    if (!each->server.is_drained()) return false;
  }
  return true;
}

void StreamServers::end() noexcept {
  for (Place* each = first_; each != nullptr; each = each->next) {
    if (each->has_moves) each->moves.end();
  }
}

}  // namespace bedplate
