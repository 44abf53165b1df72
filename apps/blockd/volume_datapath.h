// The data path of volumes: one poll source on each shard that owns volumes.
//
// For volumes that are memory it grants destinations, answers reads with the address of the data,
// copies payloads that arrived with their headers, and zeroes ranges in slices, so that other
// requests get their turn. It gives the requests of stored volumes to their queues. It never
// touches a socket. Each shard of connections has two lanes of its own; a reply goes back to the
// shard that the request came from.
#pragma once

#include <span>

#include "apps/blockd/block_request.h"
#include "platform/tail_queue.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

class VolumeService final : public PollSource {
 public:
  // `lanes`: those of each shard of connections; the next poll also rings for replies that the
  // queues of its volumes have pushed. `loop`: tells the time. Requires: 1 to kLanesMax lanes.
  // Ownership: both outlive this.
  void create(std::span<VolumeLanes> lanes, EventLoop& loop) noexcept;
  static constexpr uint32_t kLanesMax = 64;
  // Holds new requests for `volume`, or releases the held ones; requests that have begun continue.
  // Returns the number of requests released. Threads: the volume's shard.
  uint32_t hold(Volume& volume, bool is_on) noexcept;

  uint32_t poll(uint32_t budget) noexcept override;

  // Invariants, checked before and after each poll: 1. The list of zeroing requests is linked
  // correctly. 2. None of them is done, and each lies within its volume.
  bool is_valid() const noexcept;

 private:
  bool waits(BlockRequest& request) noexcept;
  uint32_t take(BlockRequestFifo& requests, uint32_t budget) noexcept;
  void handle(std::span<BlockRequest* const> requests) noexcept;
  void carry_out(BlockRequest& request) noexcept;
  void store_payloads(std::span<BlockRequest* const> requests) noexcept;
  void handle_write(BlockRequest& request) noexcept;
  void reply(BlockRequest& request) noexcept;
  uint32_t zero_some() noexcept;

  std::span<VolumeLanes> lanes_;
  EventLoop* loop_ = nullptr;
  uint32_t batch_max_ = 0;               // from one lane in one poll
  TailQueue<&BlockRequest::next> long_;  // zeroing requests, served in turn
};

}  // namespace bedplate
