// A sender's end of a mesh lane. The lane carries words only. Every payload lies in the member's
// eager region, even a short payload, which other queues carry in a slot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/queue/eager_stock.h"
#include "transport/shm/queue/mesh_lane_datapath.h"
#include "transport/shm/queue/outgoing_queue.h"

namespace bedplate {

// Threads: one at a time. Invariant: known_tail_ <= head_ <= known_tail_ + capacity. (is_valid)
class LaneSender {
 public:
  static constexpr QueueKind kKind = QueueKind::kLane;

  void open(const OutgoingRoute& route) noexcept {
    *this = {};
    lane_ = route.group.segment().lane(route.peer, route.group.self());
    stock_ = &route.stock;
    path_ = &route.path;
    peer_ = route.peer;
  }

  // Copies `data` and publishes it. Returns false, and changes nothing, if the lane or the region
  // has no space; a region smaller than `data_bytes` never has.
  bool post(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept {
    BP_DCHECK(header.kind != SlotKind::kNone && header.kind != SlotKind::kArea);
    BP_DCHECK_SLOW(is_valid());
    if (!lane_.has_room(head_, &known_tail_)) return false;
    const EagerRegion::Piece piece = stock_->take(data_bytes, *path_);
    if (piece.memory == nullptr) return false;
    std::copy_n(data, data_bytes, piece.memory);  // also for 0 bytes from nullptr
    lane_.push(head_, {header.kind, header.am, header.bytes, piece.offset});
    ++head_;
    stock_->set_use(piece, {peer_, last_index(), kKind, false, path_});
    BP_DCHECK_SLOW(is_valid());
    return true;
  }
  // Posts messages of every length alike.
  LongPost post_long(const SlotHeader& header, std::span<const std::byte> payload) noexcept {
    return post(header, payload.data(), payload.size()) ? LongPost::kPosted : LongPost::kNoRoom;
  }
  void prepare_next(uint32_t) const noexcept {}
  // Whether the lane has space for a word, and the eager region for a slot's payload.
  bool has_room() noexcept {
    if (!lane_.has_room(head_, &known_tail_)) return false;
    const EagerRegion::Piece piece = stock_->take(kInlineBytesMax, *path_);
    if (piece.memory == nullptr) return false;
    stock_->cancel(piece);
    return true;
  }

  // Whether the receiver has finished message number `index`. Requires: the message is one of the
  // last 2^31.
  bool is_consumed(uint64_t index) noexcept {
    lane_.refresh(head_, &known_tail_);
    return static_cast<int32_t>(known_tail_ - static_cast<uint32_t>(index)) > 0;
  }
  // The number of the last posted message, modulo 2^32.
  uint64_t last_index() const noexcept { return head_ - 1; }

  bool is_valid() const noexcept { return head_ - known_tail_ <= lane_.capacity(); }

 private:
  MeshLane lane_;
  EagerStock* stock_ = nullptr;
  OutgoingPath* path_ = nullptr;
  uint32_t peer_ = 0;
  uint32_t head_ = 0;
  uint32_t known_tail_ = 0;
};

}  // namespace bedplate
