#include "transport/shm/eager_stock.h"
#include "transport/shm/outgoing_way_datapath.h"

namespace bedplate {

EagerRegion::Piece EagerStock::take(uint64_t bytes, OutgoingWay& way) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  const EagerRegion::Piece piece = region_.try_take(bytes, way.peer());
  if (piece.memory != nullptr) return piece;
  region_.reclaim(
      [&](const EagerRegion::Use& use) { return use.way->is_known_consumed(use, way); });
  return region_.try_take(bytes, way.peer());
}

void EagerStock::set_use(const Piece& piece, const EagerRegion::Use& use) noexcept {
  BP_DCHECK(use.way != nullptr);
  const SpinGuard guard(lock_, is_threaded_);
  region_.set_use(piece, use);
}

void EagerStock::hold(const Piece& piece, uint32_t peer) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  region_.hold(piece, peer);
}

void EagerStock::cancel(const Piece& piece) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  region_.cancel(piece);
}

void EagerStock::forget(uint32_t peer) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  region_.reclaim([&](const EagerRegion::Use& use) { return use.member == peer; });
}

}  // namespace bedplate
