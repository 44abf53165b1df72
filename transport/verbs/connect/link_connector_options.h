// The options of a LinkConnector: its times, its values for peers, and the objects that it serves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "transport/loop/doorbell.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/device/queue_pair.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {

struct LinkTiming {
  uint64_t backoff_ns_min = 10'000'000;
  uint64_t backoff_ns_max = 1'000'000'000;
  uint64_t answer_ns_max = 2'000'000'000;  // for a whole handshake, from the call on, at each end
  uint64_t give_up_ns = 30'000'000'000;    // sends then return kGone; dialing goes on
  // An unreachable peer is logged at once, and again after tell_ns_min. Then each pause is twice as
  // long as the last one, up to tell_ns_max.
  uint64_t tell_ns_min = 60'000'000'000;
  uint64_t tell_ns_max = 3'600'000'000'000;
  // A TCP lifeline hangs up if the other end answers no probe for so long, or up to a third longer.
  uint64_t silence_ns_max = 6'000'000'000;
  // If no posted request ends for so long, the connection is made anew. The shard looks once a
  // second. A healthy device reports a silent peer much sooner. Each request has to complete within
  // this time.
  uint64_t stall_ns_max = 5'000'000'000;
  RetryOptions retry;
};

// All objects that it names outlive stop().
struct LinkConnectorOptions {
  std::string name;
  uint64_t instance = 0;
  std::optional<SocketAddress> listen;  // nothing: no peer can dial
  uint16_t window = 0;
  uint32_t message_bytes = 0;
  uint32_t flush_key = 0;
  uint64_t flush_address = 0;
  uint32_t datagram_queue = 0;  // 0: none
  bool is_by_manager = false;   // by the RDMA connection manager, not a socket
  LinkTiming timing;
  VerbsDevice* device = nullptr;  // its events are taken here
  // Readable when something arrives for a shard that sleeps; loop_bell is then rung. -1: none.
  int completion_fd = -1;
  Doorbell* bell = nullptr;       // the provider's: rung when a link changes
  Doorbell* loop_bell = nullptr;  // of the loop that polls it; nullptr: polled by hand
};

}  // namespace bedplate
