#include <algorithm>

#include "transport/shm/queue/eager_stock.h"
#include "transport/shm/queue/outgoing_path_datapath.h"

namespace bedplate {

void EagerStock::create(const GroupView& group) {
  BP_ASSERT(reserve_bytes_ == 0);
  const std::span<std::byte> region = group.eager_region_of(group.self());
  if (region.empty()) return;
  reserve_bytes_ =
      std::min(align_up(group.shape().eager_bytes, kCacheLineBytes) + 2 * kCacheLineBytes,
               region.size() / 2 / kCacheLineBytes * kCacheLineBytes);
  BP_ASSERT(reserve_bytes_ > 0);
  region_ = EagerRegion(region, group.member_count(), reserve_bytes_);
}

EagerRegion::Piece EagerStock::take(uint64_t bytes, OutgoingPath& path) noexcept {
  BP_DCHECK(is_there());
  const EagerRegion::Piece piece = region_.try_take(bytes, path.peer());
  if (piece.memory != nullptr) return piece;
  region_.reclaim([](const EagerRegion::Use& use) { return use.path->is_consumed(use); });
  return region_.try_take(bytes, path.peer());
}

void EagerStock::set_use(const Piece& piece, const EagerRegion::Use& use) noexcept {
  BP_DCHECK(use.path != nullptr);
  region_.set_use(piece, use);
}

void EagerStock::hold(const Piece& piece, uint32_t peer) noexcept { region_.hold(piece, peer); }

void EagerStock::cancel(const Piece& piece) noexcept { region_.cancel(piece); }

void EagerStock::forget(uint32_t peer) noexcept {
  region_.reclaim([&](const EagerRegion::Use& use) { return use.member == peer; });
}

}  // namespace bedplate
