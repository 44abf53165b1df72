// Drains the queue pair of a broken connection, so that it can be used again.
//
//     begin: fail the queue pair, post a marker (later, if the connector still brings it up)
//     is_done: once the marker has come back, all requests have ended; receives get 2 ms more; the
//       wait ends after 1 s in any case
//     end: reset the queue pair: the peer cannot reach lent memory any more
//
// A part of VerbsEndpoint. Threads: the shard's.
//
// Invariant: must_fail_ is set only while it drains, or after the device is gone. (is_valid)
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "transport/verbs/channel/channel_parts.h"
#include "transport/verbs/channel/verbs_parts.h"

namespace bedplate {

class QueuePairDrain {
 public:
  // `channel` outlives this.
  explicit QueuePairDrain(ChannelParts& channel) noexcept
      : parts_(channel.shared), channel_(channel) {}

  // Requires: the connection is no longer live.
  void begin() noexcept;
  bool is_in_progress() const noexcept { return channel_.is_draining; }
  // Whether the device has no request or receive of the queue pair under way, the longest wait is
  // over, or the device is lost. Fails the queue pair first, if begin() had to wait for the
  // connector. Requires: it drains.
  bool is_done(uint64_t now_ns) noexcept;
  // Ends the drain, also on an error. Requires: it drains; its completions were taken. Errors: the
  // device is gone.
  Result<void> end() noexcept;

  bool is_valid() const noexcept { return !must_fail_ || channel_.is_draining || parts_.is_lost; }

 private:
  // Requires: the connector is not bringing the queue pair up.
  void fail(uint64_t now_ns) noexcept;

  VerbsParts& parts_;
  ChannelParts& channel_;
  bool must_fail_ = false;  // fail() is due, once the connector is done with the queue pair
  uint64_t done_ns_min_ = 0;
  uint64_t done_ns_max_ = 0;
};

}  // namespace bedplate
