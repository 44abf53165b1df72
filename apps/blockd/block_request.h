// A block request: the message between the shard of the connections and the shard of a volume.
//
// It lies in the pool, in a slot of its connection, and travels as a pointer through two lanes,
// there and back. The shard that popped it owns it. A read comes back with the address of its data.
// A write travels twice. The first trip asks for a destination, and the payload is received
// straight into it. The second trip commits the write, or aborts it if the client left before the
// payload was complete. A write whose payload arrived with its header travels once: the volume's
// shard copies the payload.
//
// If the store is not memory, data lie in buffers of the volume (StoreQueue). A read travels once
// more after its data have been sent, to give its buffer back. A write whose payload was copied
// travels twice, too: first its payload is copied out of the connection's buffer, then the store
// writes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/blockd/nbd_request_datapath.h"
#include "platform/assert.h"
#include "platform/trace_ring.h"
#include "transport/loop/spsc_fifo_datapath.h"

namespace bedplate {

class Doorbell;
struct Volume;

namespace nbd {
class Connection;
}

enum class RequestStep : uint8_t {
  kSubmit,   // new; a write: asks for a destination
  kStore,    // a write whose payload lies at `data`
  kStored,   // the answer to kStore: the payload is copied; the connection commits it now
  kCommit,   // a write whose payload has arrived
  kAbort,    // a write whose payload will not arrive
  kRelease,  // its data have been sent: the volume takes its buffer back
};

// The stations of a request for `bedplate trace`, which shows them as kRequestStations. A write
// that is received in place is kGranted once it has its destination, and kQueued once its payload
// has arrived.
enum RequestStation : uint32_t {
  kReceived,  // its header has arrived
  kGranted,
  kQueued,    // it waits for the volume
  kBegun,     // the volume, or its store, works on it
  kDone,      // the volume, or its store, has finished it
  kAnswered,  // its answer was handed to the socket
  kSent,      // the socket has taken all of the answer
};
inline constexpr const char* kRequestStations = "received|granted|queued|begun|done|answered|sent";
// In the order of nbd::Command's numbers.
inline constexpr const char* kRequestKinds =
    "read|write|disconnect|flush|trim|cache|write_zeroes|block_status";

struct BlockRequest {
  nbd::Request wire = {};
  RequestStep step = RequestStep::kSubmit;
  nbd::ErrorCode error = nbd::ErrorCode::kNone;  // what to answer
  // READ: the bytes to send. WRITE: the destination granted, or the payload that has arrived.
  // BLOCK_STATUS: the descriptors as they are sent; nullptr: the whole range is data.
  std::byte* data = nullptr;
  bool has_buffer = false;  // `data` is a buffer of the volume; kRelease gives it back
  Volume* volume = nullptr;
  nbd::Connection* connection = nullptr;
  RequestTrace trace;            // from the arrival of its header on, in the loops' times
  uint64_t done_bytes = 0;       // written by the volume: progress of a long request, or the bytes
                                 // of descriptors
  BlockRequest* next = nullptr;  // link of the list that its owner queues it in
};

using BlockRequestFifo = SpscFifo<BlockRequest*>;

// The connections' end of the lane to a shard of volumes.
struct RequestLane {
  BlockRequestFifo* fifo = nullptr;  // holds all requests there can be
  Doorbell* doorbell = nullptr;      // nullptr: both ends are on one shard
  bool has_submitted = false;        // a request was pushed since the doorbell last rang

  void push(BlockRequest& request) noexcept {
    const bool pushed = fifo->try_push(&request);
    BP_ASSERT(pushed);  // the plan: the lane holds every request there is
    has_submitted = true;
  }
};

// The volumes' end of the lane back.
struct ReplyLane {
  BlockRequestFifo* fifo = nullptr;  // holds all requests there can be
  bool has_replied = false;          // a reply was pushed since its doorbell last rang

  void push(BlockRequest& request) noexcept {
    const bool pushed = fifo->try_push(&request);
    BP_ASSERT(pushed);  // the plan: the lane holds every request there is
    has_replied = true;
  }
};

}  // namespace bedplate
