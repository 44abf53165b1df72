// The endpoints of a member by their peers' places: most members speak with few of very many, so
// memory is taken for 64 places at a time, when the first of them is spoken with.
#pragma once

#include <cstdint>
#include <memory>

#include "platform/assert.h"
#include "transport/shm/group_layout.h"
#include "transport/shm/shm_endpoint.h"

namespace bedplate {

// Threads: add() by the shard that polls; at() by any, for what it has been told of.
class EndpointTable {
 public:
  // nullptr: there is none yet.
  ShmEndpoint* at(uint32_t peer) const noexcept {
    const auto& chunk = chunks_[peer / kChunkCount];
    return chunk ? chunk[peer % kChunkCount].get() : nullptr;
  }
  // Requires: there is none yet. Allocates.
  ShmEndpoint& add(uint32_t peer, std::unique_ptr<ShmEndpoint> endpoint) {
    auto& chunk = chunks_[peer / kChunkCount];
    if (!chunk) chunk = std::make_unique<std::unique_ptr<ShmEndpoint>[]>(kChunkCount);
    BP_ASSERT(!chunk[peer % kChunkCount]);
    chunk[peer % kChunkCount] = std::move(endpoint);
    return *chunk[peer % kChunkCount];
  }

 private:
  static constexpr uint32_t kChunkCount = 64;

  std::unique_ptr<std::unique_ptr<ShmEndpoint>[]> chunks_[kMemberCountMax / kChunkCount + 1];
};

}  // namespace bedplate
