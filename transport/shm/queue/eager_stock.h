// The member's own eager region, shared by all its paths to peers.
#pragma once

#include <cstdint>

#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/queue/eager_region_datapath.h"

namespace bedplate {

class OutgoingPath;

// Threads: the shard's.
class EagerStock {
 public:
  using Piece = EagerRegion::Piece;

  // Allocates. A member of an exchange has no region: is_there() is false, and nobody calls take().
  void create(const GroupView& group);
  bool is_there() const noexcept { return reserve_bytes_ != 0; }

  // Allocates `bytes` for a message that goes through `path`. If there is no space, first frees the
  // chunks of messages that any peer has consumed. Returns memory == nullptr if there still is no
  // space. Requires: is_there().
  Piece take(uint64_t bytes, OutgoingPath& path) noexcept;
  // Records that the last message that `path` posted uses the chunk.
  void set_use(const Piece& piece, const EagerRegion::Use& use) noexcept;
  // Makes `peer` the chunk's holder, and keeps the chunk in use until cancel() or set_use().
  void hold(const Piece& piece, uint32_t peer) noexcept;
  void cancel(const Piece& piece) noexcept;
  // Frees all chunks whose use names `peer`. Called when another member has got that number.
  void forget(uint32_t peer) noexcept;

  // The size of the reserve, which is for peers that hold no chunk. It has space for the longest
  // message, or for the record of a put or get with as much data and, in a mesh, the line of the
  // word that announces the record. But it takes at most half of the region.
  uint64_t reserve_bytes() const noexcept { return reserve_bytes_; }

 private:
  uint64_t reserve_bytes_ = 0;
  EagerRegion region_;
};

}  // namespace bedplate
