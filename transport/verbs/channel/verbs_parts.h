// State that the endpoints of a VerbsProvider share with one another and with the provider. Each
// part has a contract of its own, so neither side knows the inside of the other.
//
// The provider owns it. It sets the first fields once, before it makes an endpoint, and keeps them
// until the last endpoint is gone. Only limits.inline_bytes_max follows later, in create(): a queue
// pair tells it.
//
// Invariants, checked by is_valid() around each change: 1. The fields that are set once are set and
// consistent: a message holds its header and am_bytes_max, and the instance is not 0. 2. If windows
// open loans, no key opens all of loan_bounce. 3. No more endpoints drain, or are dirty, than there
// are peers. 4. The bounce buffers, the dirty list and the datagram queue are valid.
//
// Threads: the polling shard's, which holds `owner` while it polls, in debug builds. The connector
// has its own contract.
#pragma once

#include <cstdint>

#include "platform/thread_owner.h"
#include "transport/messages/provider.h"
#include "transport/registration.h"
#include "transport/verbs/channel/bounce_buffer_datapath.h"
#include "transport/verbs/channel/datagram_queue_datapath.h"
#include "transport/verbs/channel/dirty_list_datapath.h"
#include "transport/verbs/channel/verbs_counters.h"
#include "transport/verbs/channel/verbs_shape.h"
#include "transport/verbs/connect/link_connector.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {

struct VerbsParts {
  // ---- Set once. All that they point to outlives this ----

  Provider* provider = nullptr;  // loans are released to it
  const Dispatcher* dispatcher = nullptr;
  VerbsDevice* device = nullptr;
  const KeyTable* keys = nullptr;  // of the pool with this device
  VerbsCounters* counters = nullptr;
  VerbsShape shape;
  EndpointLimits limits;
  uint64_t stall_ns_max = 0;  // LinkTiming's
  uint64_t instance = 0;
  uint32_t memory_key = 0;       // local key of the provider's memory
  uint32_t loan_bounce_key = 0;  // key for all of loan_bounce; 0: windows open parts of it
  bool uses_windows = false;

  // ---- Shared ----

  BounceBuffer loan_bounce;      // read by peers: copies of lent blocks
  BounceBuffer transfer_bounce;  // no peer reads it: for puts and gets outside the pool
  DatagramQueue datagrams;
  LinkConnector connector;
  DirtyList dirty;              // an endpoint adds itself, the provider posts
  uint32_t draining_count = 0;  // endpoints that drain: each counts itself
  bool is_lost = false;         // the device is gone for good: VerbsProvider::lose_device
  ThreadOwner owner;            // held by the thread that polls, in debug builds

  // Whether no other thread is polling: each function of the shard checks it first. Always true in
  // release builds.
  bool is_own_thread() const noexcept { return owner.is_caller(); }
  // Requires: the provider is made.
  bool is_valid() const noexcept {
    if (provider == nullptr || dispatcher == nullptr || device == nullptr || keys == nullptr ||
        counters == nullptr || instance == 0) {
      return false;
    }
    if (limits.am_bytes_max + sizeof(VerbsMessageHeader) != shape.message_bytes) return false;
    if (uses_windows && loan_bounce_key != 0) return false;
    if (draining_count > shape.peer_count_max || dirty.all().size() > shape.peer_count_max) {
      return false;
    }
    return loan_bounce.is_valid() && transfer_bounce.is_valid() && dirty.is_valid() &&
           (!datagrams.is_open() || datagrams.is_valid());
  }
};

}  // namespace bedplate
