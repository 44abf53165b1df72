// The options of a LinkConnector: its times, what it tells peers of itself, and what it serves.
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
  uint64_t answer_ns_max = 2'000'000'000;  // for the records of a handshake
  uint64_t give_up_ns = 30'000'000'000;    // then sends say kGone; it is dialed on all the same
  // An unreachable peer is logged at once, then after this, then after twice as long each time.
  uint64_t tell_ns_min = 60'000'000'000;
  uint64_t tell_ns_max = 3'600'000'000'000;
  // A TCP lifeline whose other end answers no probe hangs up, a third later at most.
  uint64_t silence_ns_max = 6'000'000'000;
  // If no posted request ends for so long, the connection is made anew. A healthy device reports a
  // silent peer much sooner; each request has to get through in this time.
  uint64_t stall_ns_max = 5'000'000'000;
  RetryOptions retry;
};

// All objects that it names outlive stop().
struct LinkConnectorOptions {
  std::string name;
  uint64_t instance = 0;
  std::optional<SocketAddress> listen;
  uint16_t window = 0;
  uint32_t message_bytes = 0;
  uint32_t flush_key = 0;
  uint64_t flush_address = 0;
  uint32_t datagram_queue = 0;  // 0: none
  bool is_by_manager = false;   // the RDMA connection manager's, and no socket
  LinkTiming timing;
  VerbsDevice* device = nullptr;  // its events are taken here
  int completion_fd = -1;         // readable when something arrives for a shard that sleeps
  Doorbell* bell = nullptr;       // the provider's: rung when a link changes
  Doorbell* loop_bell = nullptr;  // of the loop that polls it; nullptr: polled by hand
};

}  // namespace bedplate
