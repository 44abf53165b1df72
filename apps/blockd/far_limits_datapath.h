// The limits of a block server, for connections on another shard than the limits.
//
//     admit(request)     it goes to the shard of the limits, by a lane
//       there: poll()      it passes its limits, now or when its turn comes, and comes back
//     poll_back()        passed(request): it goes to its volume, as one without limits does
//     drop_left()        there: requests that wait, and whose connection has left, come back
//     set_on(false)      from now on requests wait here until all are back, and then pass:
//
//     off -- set_on(true) --> on -- set_on(false) --> ending -- all are back --> off
//
// So requests of a connection reach its volume in their order: by one lane, that of their own
// shard, with limits or without. While no limit is set, nothing crosses for them.
//
// Invariants, which is_valid() looks at: 1. A request waits here only while it ends. 2. Nothing is
// out while it is off.
// Threads: the shard of the connections, but for poll(), back() and what they call: those are for
// the shard of the limits. Nothing is allocated.
#pragma once

#include <cstdint>

#include "apps/blockd/block_limits.h"
#include "apps/blockd/block_request.h"
#include "platform/cache_line.h"
#include "platform/tail_queue.h"
#include "transport/loop/event_loop.h"

namespace bedplate {

struct FarLimitsOptions {
  uint8_t home = 0;  // the number of the connections' shard
  BlockLimits* limits = nullptr;
  EventLoop* limits_loop = nullptr;
  EventLoop* connections_loop = nullptr;
  // The lanes there and back; each has space for all requests of the shard.
  BlockRequestFifo* there = nullptr;
  BlockRequestFifo* back = nullptr;
};

// As a source it is polled by the loop of the limits.
class FarLimits final : public PollSource {
 public:
  static constexpr uint32_t kBudget = 64;  // of one poll, on either shard

  FarLimits() noexcept = default;
  FarLimits(const FarLimits&) = delete;
  FarLimits& operator=(const FarLimits&) = delete;

  // Called once, before all else. Ownership: all that `options` names outlives this.
  void create(const FarLimitsOptions& options) noexcept;
  // Called once: `passed` gets each request that has passed its limits, or was dropped.
  void serve(void (*passed)(void* context, BlockRequest& request) noexcept, void* context) noexcept;

  // ---- The shard of the connections ----

  void set_on(bool is_on) noexcept;
  // True while requests have to come here: it is on, or ends.
  bool is_on() const noexcept { return is_on_; }
  // Requires: is_on(); the request is new.
  void admit(BlockRequest& request) noexcept;
  // Brings the requests back whose connections have left, soon. Connections that leave later need
  // another call.
  void drop_left() noexcept { options_.limits_loop->submit(drop_call_); }
  uint32_t poll_back(uint32_t budget) noexcept;
  // Rings once for all that was sent.
  void ring() noexcept { there_.ring(); }
  bool is_valid() const noexcept;

  // ---- The shard of the limits ----

  uint32_t poll(uint32_t budget) noexcept override;
  // The lane of requests that have passed; poll() rings for it.
  BlockLane& back() noexcept { return back_; }

 private:
  void end() noexcept;
  void drop_there() noexcept;

  FarLimitsOptions options_;
  void (*passed_)(void* context, BlockRequest& request) noexcept = nullptr;
  void* context_ = nullptr;
  LoopCall drop_call_ = {
      .function = [](void* self) noexcept { static_cast<FarLimits*>(self)->drop_there(); },
      .context = this};

  // The connections' shard alone writes these.
  alignas(kCacheLineBytes) BlockLane there_;
  bool is_on_ = false;
  bool is_ending_ = false;
  uint32_t out_count_ = 0;
  TailQueue<&BlockRequest::next> waiting_;
  // The limits' shard alone writes it.
  alignas(kCacheLineBytes) BlockLane back_;
};

}  // namespace bedplate
