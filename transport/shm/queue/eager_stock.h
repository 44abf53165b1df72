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

  // Allocates. An exchange has no region, and take() finds no space.
  void create(const GroupView& group);
  bool is_there() const noexcept { return reserve_bytes_ != 0; }

  // Allocates `bytes` for a message that goes through `path`. If there is no space, asks all paths
  // for messages that their peers have consumed.
  Piece take(uint64_t bytes, OutgoingPath& path) noexcept;
  // Records that the last message that `path` posted uses the chunk.
  void set_use(const Piece& piece, const EagerRegion::Use& use) noexcept;
  // Keeps the chunk in use until cancel() or set_use().
  void hold(const Piece& piece, uint32_t peer) noexcept;
  void cancel(const Piece& piece) noexcept;
  // Frees the chunks of messages that the former member with this number has not consumed.
  void forget(uint32_t peer) noexcept;

  // The reserve, for peers that hold nothing: space for a message of any length, and for the record
  // of a put or get of the same size with the word that announces it in a mesh; at most half of the
  // region.
  uint64_t reserve_bytes() const noexcept { return reserve_bytes_; }

 private:
  uint64_t reserve_bytes_ = 0;
  EagerRegion region_;
};

}  // namespace bedplate
