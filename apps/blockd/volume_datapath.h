// The volumes' side of blockd: one poll source on the shard that owns the volumes.
//
// It grants destinations, answers where data lies, copies payloads that have arrived with their
// headers, and zeroes; it never touches a socket. Long requests (zeroing gigabytes) are done in
// slices, so that others get their turn.
#pragma once

#include "apps/blockd/block_request.h"
#include "apps/blockd/block_server_counters.h"
#include "transport/doorbell.h"
#include "transport/event_loop.h"

namespace bedplate {

struct VolumeServiceOptions {
  BlockRequestFifo* requests = nullptr;  // consumer end
  BlockRequestFifo* replies = nullptr;   // producer end; holds all requests there can be
  Doorbell* replies_doorbell = nullptr;  // nullptr: both ends are on this shard
  VolumeCounters* counters = nullptr;
};

class VolumeService final : public PollSource {
 public:
  void create(const VolumeServiceOptions& options) noexcept { options_ = options; }

  uint32_t poll(uint32_t budget) noexcept override;

  // Invariants, looked at before and after each poll: 1. the requests that zero are in one list, to
  // its last. 2. None of them is done, and each lies within its volume.
  bool is_valid() const noexcept;

 private:
  void handle(BlockRequest& request) noexcept;
  void handle_write(BlockRequest& request) noexcept;
  void reply(BlockRequest& request) noexcept;
  uint32_t zero_some() noexcept;

  VolumeServiceOptions options_;
  BlockRequest* first_long_ = nullptr;  // requests that zero, in turn
  BlockRequest* last_long_ = nullptr;
  bool has_replied_ = false;
};

}  // namespace bedplate
