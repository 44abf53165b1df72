// A block request: what crosses between the shard of the connections and that of its volume.
//
// It lies in the pool, in a slot of its connection, and travels as a pointer through two lanes,
// there and back; the shard that popped it owns it. A read comes back with where its bytes lie. A
// write travels twice: first to be granted a destination, then, its payload received straight into
// that destination, to be committed (or aborted, when the client left in the middle). One whose
// payload has arrived with its header travels once: the volume's shard copies the payload.
//
// On a store that is not memory, data lie in buffers of the volume (StoreQueue). A read travels
// once more when its data have been sent, to give its buffer back, and so does a write whose
// payload was copied: the first journey takes it out of the connection's way, the second is for the
// store.
//
// Tested by tests/apps/blockd/volume_test.cc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "apps/blockd/nbd_request_datapath.h"
#include "apps/blockd/stores/volume_store.h"
#include "platform/assert.h"
#include "platform/trace_ring.h"
#include "transport/spsc_fifo_datapath.h"

namespace bedplate {

class Connection;
class Doorbell;
class StoreQueue;

struct BlockRequest;
struct RequestLane;
struct VolumeCounters;

// Of a volume that was told to wait: requests that have come since, oldest first. The volumes'
// shard's, but for `is_on`, which any thread may read.
struct VolumeHold {
  std::atomic<bool> is_on{false};
  BlockRequest* first = nullptr;
  BlockRequest* last = nullptr;
};

// What an export stands for. Read-only after boot.
struct Volume {
  VolumeStore* store = nullptr;
  StoreQueue* queue = nullptr;  // to the store; nullptr: it is memory
  VolumeHold* hold = nullptr;
  RequestLane* requests = nullptr;  // to its shard
  VolumeCounters* counters = nullptr;
};

enum class RequestStep : uint8_t {
  kSubmit,   // new; a write: asks for a destination
  kStore,    // a write whose payload lies at `data`
  kStored,   // the answer, where the payload has been copied and is to be committed now
  kCommit,   // a write whose payload has arrived
  kAbort,    // a write whose payload will not arrive
  kRelease,  // its data have been sent: its buffer is free
};

// What `bedplate trace` calls kReceived and those that follow. A write that is received in place is
// kGranted once it has its place, and kQueued once its payload has come.
enum RequestStation : uint32_t {
  kReceived,  // its header has come
  kGranted,
  kQueued,    // it waits for the volume
  kBegun,     // the volume, or its store, works on it
  kDone,      // and has ended
  kAnswered,  // its answer was handed to the socket
  kSent,      // which has taken all of it
};
inline constexpr const char* kRequestStations = "received|granted|queued|begun|done|answered|sent";
// As the numbers of nbd::Command.
inline constexpr const char* kRequestKinds =
    "read|write|disconnect|flush|trim|cache|write_zeroes|block_status";

struct BlockRequest {
  nbd::Request wire = {};
  RequestStep step = RequestStep::kSubmit;
  nbd::ErrorCode error = nbd::ErrorCode::kNone;  // what to answer
  // READ: the bytes to send. WRITE: the destination granted, or the payload that has arrived.
  // BLOCK_STATUS: descriptors, as they are sent; nullptr: all of it is data.
  std::byte* data = nullptr;
  bool has_buffer = false;  // the volume's, at `data`: kRelease gives it back
  const Volume* volume = nullptr;
  Connection* connection = nullptr;
  RequestTrace trace;            // from its header on, by the loops' times
  uint64_t done_bytes = 0;       // the volume's: how far a long request is; of descriptors
  BlockRequest* next = nullptr;  // its owner queues it with this
};

using BlockRequestFifo = SpscFifo<BlockRequest*>;

// The connections' end of the lane to a shard of volumes.
struct RequestLane {
  BlockRequestFifo* fifo = nullptr;  // holds all requests there can be
  Doorbell* doorbell = nullptr;      // nullptr: both ends are on one shard
  bool has_submitted = false;        // since it was rung

  void push(BlockRequest& request) noexcept {
    const bool pushed = fifo->try_push(&request);
    BP_ASSERT(pushed);  // the plan: the lane holds every request there is
    has_submitted = true;
  }
};

// The volumes' end of the lane back.
struct ReplyLane {
  BlockRequestFifo* fifo = nullptr;  // holds all requests there can be
  bool has_replied = false;          // since its doorbell was rung

  void push(BlockRequest& request) noexcept {
    const bool pushed = fifo->try_push(&request);
    BP_ASSERT(pushed);  // the plan: the lane holds every request there is
    has_replied = true;
  }
};

}  // namespace bedplate
