// The data path of volumes: one poll source on each shard that owns volumes.
//
// For volumes that are memory it grants destinations, answers reads with the address of the data,
// copies payloads that arrived with their headers, and zeroes ranges in slices, so that other
// requests get their turn. It gives the requests of stored volumes to their queues. It never
// touches a socket.
#pragma once

#include <span>

#include "apps/blockd/block_request.h"
#include "platform/tail_queue.h"
#include "transport/loop/doorbell.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

struct VolumeServiceOptions {
  BlockRequestFifo* requests = nullptr;  // consumer end
  BlockRequestFifo* replies = nullptr;   // producer end; holds all requests there can be
  Doorbell* replies_doorbell = nullptr;  // nullptr: both ends are on this shard
  EventLoop* loop = nullptr;             // tells the time
};

class VolumeService final : public PollSource {
 public:
  void create(const VolumeServiceOptions& options) noexcept {
    options_ = options;
    replies_.fifo = options.replies;
  }
  // Holds new requests for `volume`, or releases the held ones; requests that have begun continue.
  // Returns the number of requests released. Threads: the volume's shard.
  uint32_t hold(Volume& volume, bool is_on) noexcept;
  // The lane for the replies of its volumes' queues; the next poll rings the doorbell for them.
  ReplyLane& replies() noexcept { return replies_; }

  uint32_t poll(uint32_t budget) noexcept override;

  // Invariants, checked before and after each poll: 1. The list of zeroing requests is linked
  // correctly. 2. None of them is done, and each lies within its volume.
  bool is_valid() const noexcept;

 private:
  bool waits(BlockRequest& request) noexcept;
  void handle(std::span<BlockRequest* const> requests) noexcept;
  void carry_out(BlockRequest& request) noexcept;
  void store_payloads(std::span<BlockRequest* const> requests) noexcept;
  void handle_write(BlockRequest& request) noexcept;
  void reply(BlockRequest& request) noexcept;
  uint32_t zero_some() noexcept;

  VolumeServiceOptions options_;
  TailQueue<&BlockRequest::next> long_;  // zeroing requests, served in turn
  ReplyLane replies_;
};

}  // namespace bedplate
