#include "transport/shm/endpoint/endpoint_table.h"

#include <new>

namespace bedplate {

void EndpointTable::create(ShmParts& parts, const MembershipView& view) {
  BP_ASSERT(parts_ == nullptr);
  parts_ = &parts;
  view_ = &view;
  chunk_count_ = parts.outgoing.group.member_count() / kChunkCount + 1;
  chunks_ = std::make_unique<Chunk[]>(chunk_count_);
}

ShmEndpoint* EndpointTable::try_add(uint32_t peer) noexcept {
  BP_ASSERT(parts_->outgoing.group.is_peer(peer));
  Chunk& chunk = chunks_[peer / kChunkCount];
  if (!chunk) chunk.reset(new (std::nothrow) std::unique_ptr<ShmEndpoint>[kChunkCount]);
  if (!chunk) return nullptr;
  std::unique_ptr<ShmEndpoint>& slot = chunk[peer % kChunkCount];
  if (!slot) slot.reset(new (std::nothrow) ShmEndpoint(*parts_, peer));
  BP_DCHECK_SLOW(is_valid());
  return slot.get();
}

ShmEndpoint* EndpointTable::try_make(uint32_t peer) noexcept {
  ShmEndpoint* endpoint = at(peer);
  if (endpoint == nullptr) endpoint = try_add(peer);
  if (endpoint == nullptr) return nullptr;
  const GroupView& group = parts_->outgoing.group;
  const uint64_t generation = group.members().generation(peer);
  if (endpoint->generation() == generation) return endpoint;
  const bool is_open = group.is_alive(peer) && !view_->is_pool_gone();
  const auto opened = endpoint->open(generation, is_open);
  if (!opened.ok() && copy_news_ == CopyNews::kNone) {
    copy_news_ = CopyNews::kFailed;
    copy_error_ = opened.error();
  }
  return endpoint;
}

const Error* EndpointTable::take_copy_error() noexcept {
  if (copy_news_ != CopyNews::kFailed) return nullptr;
  copy_news_ = CopyNews::kTold;
  return &copy_error_;
}

bool EndpointTable::is_valid() const noexcept {
  for (uint32_t peer = 0; peer < chunk_count_ * kChunkCount; ++peer) {
    const Chunk& chunk = chunks_[peer / kChunkCount];
    const ShmEndpoint* endpoint = chunk ? chunk[peer % kChunkCount].get() : nullptr;
    if (endpoint == nullptr) continue;
    if (endpoint->peer() != peer || !parts_->outgoing.group.is_peer(peer)) return false;
  }
  return true;
}

}  // namespace bedplate
