// A volume of a block server: VolumePlan during planning, Volume once the server is created. The
// index is the same in both, and is that of the [[blockd.volume]].
//
// A Volume owns everything that belongs to one volume: its store, the queue in front of the store,
// and the requests that it holds. Its memory is in the pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/blockd/block_request.h"
#include "apps/blockd/nbd_export.h"
#include "apps/blockd/stores/store_queue_datapath.h"
#include "apps/blockd/stores/store_silence.h"
#include "apps/blockd/stores/volume_store.h"
#include "apps/blockd/volume_counters.h"
#include "pinned_pool/plan.h"
#include "platform/tail_queue.h"

namespace bedplate {

class BlockLimit;

struct VolumePlan {
  std::string name;
  uint64_t bytes = 0;  // if the volume is memory
  bool read_only = false;
  Placement placement = {};
  std::optional<StoreQueueShape> queue = {};  // nothing: the volume is memory
  uint32_t shard = 0;                         // index into BlockServerWiring::volume_loops
  std::string tenant = {};                    // of its limit of this kind; empty: none
};

// The requests that a held volume has received since it was held, oldest first. It belongs to the
// volume's shard; any thread may read `is_on`.
struct VolumeHold {
  std::atomic<bool> is_on{false};
  TailQueue<&BlockRequest::next> requests;
};

// BlockServer::create() fills it in; BlockServer::OpenVolume fills in a part of it.
struct Volume {
  // Read for each request; constant after boot.
  std::unique_ptr<VolumeStore> store;
  std::unique_ptr<StoreQueue> queue;  // in front of the store; nullptr: the volume is memory
  VolumeCounters* counters = nullptr;
  VolumeHold hold;
  // These belong to the shard of the limits. nullptr: it has none.
  BlockLimit* limit = nullptr;
  BlockLimit* tenant_limit = nullptr;
  std::vector<BlockLane*> behind_limits;  // the next lane of a request, by BlockRequest::home

  const VolumePlan* plan = nullptr;
  // True: clients' writes are refused. The first shard of connections writes it, and the others
  // follow; any thread reads it.
  std::atomic<bool> is_read_only{false};
  StoreCounters* store_counters = nullptr;  // set if it has a queue

  // For the main thread, which logs the state of its store.
  StoreSilence silence;
  bool has_told_failure = false;
};

// A volume as the connections of one shard see it. Threads: that shard's.
struct VolumeDoor {
  Volume* volume = nullptr;
  BlockLane* requests = nullptr;              // to the volume's shard
  VolumeRequestCounters* counters = nullptr;  // of this shard
  nbd::ExportInfo* exported = nullptr;        // as clients see it
};

}  // namespace bedplate
