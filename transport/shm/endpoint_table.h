// The endpoints of a member by their peers' places: most members speak with few of very many, so
// memory is taken for 64 places at a time, when the first of them is spoken with.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "platform/assert.h"
#include "transport/shm/group_layout.h"
#include "transport/shm/shm_endpoint.h"

namespace bedplate {

// Threads: try_add() by the shard that polls; at() by any, for what it has been told of.
class EndpointTable {
 public:
  // nullptr: there is none yet.
  ShmEndpoint* at(uint32_t peer) const noexcept {
    const auto& chunk = chunks_[peer / kChunkCount];
    return chunk ? chunk[peer % kChunkCount].get() : nullptr;
  }
  // Makes one. nullptr: there is no memory for it. Requires: there is none yet. Allocates.
  ShmEndpoint* try_add(ShmProvider& provider, uint32_t peer) noexcept {
    auto& chunk = chunks_[peer / kChunkCount];
    if (!chunk) chunk.reset(new (std::nothrow) std::unique_ptr<ShmEndpoint>[kChunkCount]);
    if (!chunk) return nullptr;
    std::unique_ptr<ShmEndpoint>& place = chunk[peer % kChunkCount];
    BP_ASSERT(!place);
    place.reset(new (std::nothrow) ShmEndpoint(provider, peer));
    return place.get();
  }

 private:
  static constexpr uint32_t kChunkCount = 64;

  std::unique_ptr<std::unique_ptr<ShmEndpoint>[]> chunks_[kMemberCountMax / kChunkCount + 1];
};

}  // namespace bedplate
