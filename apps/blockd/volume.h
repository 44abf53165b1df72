// A volume of a block server: VolumePlan while it is planned, Volume once the server has it. Its
// index is the same in both, and is that of its [[blockd.volume]].
//
// A Volume owns all that is the volume's alone: its store, the queue of operations before that, the
// requests that it holds. Its memory is the pool's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/blockd/block_request.h"
#include "apps/blockd/nbd_export.h"
#include "apps/blockd/stores/store_queue_datapath.h"
#include "apps/blockd/stores/store_silence.h"
#include "apps/blockd/stores/volume_store.h"
#include "apps/blockd/volume_counters.h"
#include "pinned_pool/plan.h"
#include "platform/tail_queue.h"

namespace bedplate {

struct VolumePlan {
  std::string name;
  uint64_t bytes = 0;  // of memory
  bool read_only = false;
  Placement placement = {};
  std::optional<StoreQueueShape> queue = {};  // nothing: the volume is memory
  uint32_t shard = 0;                         // its number among BlockServerWiring::volume_loops
};

// The requests that a held volume has received since it was held, oldest first. It belongs to the
// volume's shard; any thread may read `is_on`.
struct VolumeHold {
  std::atomic<bool> is_on{false};
  TailQueue<&BlockRequest::next> requests;
};

// BlockServer::create() fills it in, its caller a part of it (BlockServer::OpenVolume).
struct Volume {
  // Each request needs these; they stay as they are after boot.
  std::unique_ptr<VolumeStore> store;
  std::unique_ptr<StoreQueue> queue;  // to the store; nullptr: the volume is memory
  RequestLane* requests = nullptr;    // to its shard
  VolumeCounters* counters = nullptr;
  VolumeHold hold;

  const VolumePlan* plan = nullptr;
  // The volume as clients see it. Written by the shard of the connections.
  nbd::ExportInfo* exported = nullptr;
  StoreCounters* store_counters = nullptr;  // if it has a queue

  // For the control thread, which tells the log of its store.
  StoreSilence silence;
  bool has_told_failure = false;
};

}  // namespace bedplate
