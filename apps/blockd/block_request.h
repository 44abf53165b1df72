// A block request: the message between the shard of the connections and the shard of a volume.
//
// It lies in the pool, in a slot of its connection, and travels as a pointer through two lanes,
// there and back. The shard that popped it owns it. A read comes back with the address of its data.
// A write travels twice. The first trip asks for a destination, and the connection receives the
// payload straight into it. The second trip commits the write, or aborts it if the client left
// before the payload was complete. A write whose payload arrived with its header travels once: the
// volume's shard copies the payload.
//
// If the store is not memory, data lie in buffers of the volume (StoreQueue). A read, or a
// BLOCK_STATUS with descriptors, travels once more when its answer has been sent or dropped, to
// give its buffer back. A write whose payload arrived with its header travels twice, too: on the
// first trip the volume's shard copies the payload out of the connection's buffer, on the second
// trip the store writes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/blockd/nbd_request_datapath.h"
#include "platform/assert.h"
#include "platform/trace_ring.h"
#include "transport/loop/doorbell.h"
#include "transport/loop/rate_limit_datapath.h"
#include "transport/loop/spsc_fifo_datapath.h"

namespace bedplate {

struct Volume;

namespace nbd {
class Connection;
}

enum class RequestStep : uint8_t {
  kSubmit,   // a new request; a write asks for a destination
  kStore,    // a new write whose payload lies at `data`, in the connection's buffer
  kStored,   // a StoreQueue's answer to kStore: it has copied the payload; next is kCommit
  kCommit,   // a write whose payload lies at its destination
  kAbort,    // a write whose payload will not arrive
  kRelease,  // its answer has been sent or dropped: the volume takes its buffer back
};

// The stations of a request. `bedplate trace` shows them by the names in kRequestStations. A write
// that is received in place passes kGranted when it has its destination, and kQueued when its
// payload has arrived. A station that a request passes twice keeps the later time.
enum RequestStation : uint32_t {
  kReceived,  // its header has arrived
  kGranted,
  kQueued,    // it waits for the volume, its limits behind it
  kBegun,     // the volume, or its store, works on it
  kDone,      // the volume, or its store, has finished it
  kAnswered,  // its answer was handed to the socket
  kSent,      // the socket has taken all of the answer
};
inline constexpr const char* kRequestStations = "received|granted|queued|begun|done|answered|sent";
// The names of the commands, in the order of nbd::Command's numbers.
inline constexpr const char* kRequestKinds =
    "read|write|disconnect|flush|trim|cache|write_zeroes|block_status";

// As a RateWaiter it waits for a limit, before its volume's shard gets it.
struct BlockRequest : RateWaiter {
  nbd::Request wire = {};
  RequestStep step = RequestStep::kSubmit;
  nbd::ErrorCode error = nbd::ErrorCode::kNone;  // what to answer
  // READ: the bytes to send. WRITE: the destination granted, or the payload that has arrived.
  // BLOCK_STATUS: the descriptors as they are sent; nullptr: the whole range is data.
  std::byte* data = nullptr;
  bool has_buffer = false;  // `data` is a buffer of the volume; kRelease gives it back
  uint8_t home = 0;         // the number of its connection's shard among the server's; constant
  Volume* volume = nullptr;
  nbd::Connection* connection = nullptr;
  RequestTrace trace;  // from the arrival of its header on, by the clocks of the loops
  // The volume writes it: the bytes of a long request done so far, or the bytes of the descriptors.
  uint64_t done_bytes = 0;
  BlockRequest* next = nullptr;  // the link in its owner's list
};

using BlockRequestFifo = SpscFifo<BlockRequest*>;

// The sending end of a lane between two shards. Threads: the sender's.
struct BlockLane {
  BlockRequestFifo* fifo = nullptr;  // has space for all requests of the connections' shard
  Doorbell* doorbell = nullptr;      // the receiver's; nullptr if both ends are on one shard
  bool has_pushed = false;           // a request was pushed since the doorbell last rang

  void push(BlockRequest& request) noexcept {
    const bool pushed = fifo->try_push(&request);
    BP_ASSERT(pushed);  // the plan: the lane holds every request there is
    has_pushed = true;
  }
  // Rings once for all that was pushed.
  void ring() noexcept {
    if (has_pushed && doorbell != nullptr) doorbell->ring();
    has_pushed = false;
  }
};

// The two lanes between a shard of connections and one of volumes, as the latter sees them. It has
// an array of them, by BlockRequest::home.
struct VolumeLanes {
  BlockRequestFifo* requests = nullptr;  // the receiving end
  BlockLane replies = {};
};

}  // namespace bedplate
