// The volumes' side of blockd: one poll source on each shard that owns volumes.
//
// Of volumes that are memory it grants destinations, answers where data lies, copies payloads that
// have arrived with their headers, and zeroes, in slices, so that others get their turn. What is
// asked of others it gives to their queues. It never touches a socket.
#pragma once

#include <span>

#include "apps/blockd/block_request.h"
#include "apps/blockd/block_server_counters.h"
#include "transport/doorbell.h"
#include "transport/event_loop.h"

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
  // What is new for `volume` waits, or no longer; what was begun goes on. Returns how many requests
  // went on. Threads: its shard's.
  uint32_t hold(const Volume& volume, bool is_on) noexcept;
  // For the queues of its volumes: what they answer leaves with its next poll, at once.
  ReplyLane& replies() noexcept { return replies_; }

  uint32_t poll(uint32_t budget) noexcept override;

  // Invariants, looked at before and after each poll: 1. the requests that zero are in one list, to
  // its last. 2. None of them is done, and each lies within its volume.
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
  BlockRequest* first_long_ = nullptr;  // requests that zero, in turn
  BlockRequest* last_long_ = nullptr;
  ReplyLane replies_;
};

}  // namespace bedplate
