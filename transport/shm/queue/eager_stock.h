// The member's own eager region as all its ways share it.
#pragma once

#include <cstdint>

#include "transport/shm/endpoint/shm_place.h"
#include "transport/shm/queue/eager_region_datapath.h"

namespace bedplate {

class OutgoingWay;

// Threads: the shard's.
class EagerStock {
 public:
  using Piece = EagerRegion::Piece;

  // Allocates. In an exchange there is no region, and no piece of it is ever had.
  void create(const ShmPlace& place);
  bool is_there() const noexcept { return reserve_bytes_ != 0; }

  // Room for `bytes` of a message that goes through `way`. If there is none all ways are asked for
  // messages that their peers have consumed.
  Piece take(uint64_t bytes, OutgoingWay& way) noexcept;
  // The message that `way` posted last uses the piece.
  void set_use(const Piece& piece, const EagerRegion::Use& use) noexcept;
  // It is in use until cancel() or set_use().
  void hold(const Piece& piece, uint32_t peer) noexcept;
  void cancel(const Piece& piece) noexcept;
  // Frees the pieces of messages that the former member in `peer`'s place has not consumed.
  void forget(uint32_t peer) noexcept;

  // The reserve, for peers that hold nothing: room for a message of any length, and for the record
  // of a put or get of as much with the word that announces it in a mesh; or half of the region.
  uint64_t reserve_bytes() const noexcept { return reserve_bytes_; }

 private:
  uint64_t reserve_bytes_ = 0;
  EagerRegion region_;
};

}  // namespace bedplate
