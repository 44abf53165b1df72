// A block request: what crosses between the shard of the connections and that of the volumes.
//
// It lies in the pool, in a slot of its connection, and travels as a pointer through two lanes,
// there and back; the shard that popped it owns it. A read comes back with where its bytes lie. A
// write travels twice: first to be granted a destination, then, its payload received straight into
// that destination, to be committed (or aborted, when the client left in the middle). One whose
// payload has arrived with its header travels once: the volumes' shard copies the payload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/blockd/nbd_request_datapath.h"
#include "apps/blockd/stores/volume_store.h"
#include "transport/spsc_fifo_datapath.h"

namespace bedplate {

class Connection;

// What an export stands for. Read-only after boot.
struct Volume {
  VolumeStore* store = nullptr;
};

enum class RequestStep : uint8_t {
  kSubmit,  // new; a write: asks for a destination
  kStore,   // a write whose payload lies at `data`
  kCommit,  // a write whose payload has arrived
  kAbort,   // a write whose payload will not arrive
};

struct BlockRequest {
  nbd::Request wire = {};
  RequestStep step = RequestStep::kSubmit;
  nbd::ErrorCode error = nbd::ErrorCode::kNone;  // what to answer
  // READ: the bytes to send. WRITE: the destination granted, or the payload that has arrived.
  std::byte* data = nullptr;
  const Volume* volume = nullptr;
  Connection* connection = nullptr;
  uint64_t received_ns = 0;      // the loop's time then
  uint64_t done_bytes = 0;       // the volume's: how far a long request is
  BlockRequest* next = nullptr;  // its owner queues it with this
};

using BlockRequestFifo = SpscFifo<BlockRequest*>;

}  // namespace bedplate
