// The NVMe drives of a block service: their volumes, their resources, their start and shutdown.
//
// A drive has one queue pair for each shard that serves its volumes. The first of these shards also
// runs the drive's controller. A drive may grant fewer queue pairs than planned, but it reports the
// number only after its start. Then each granted pair has one shard, the volumes of the other
// shards move to these shards, and the memory planned for the other pairs stays unused.
// preflight() asks a drive for its properties before memory is taken: it starts the drive with
// temporary memory, and stops it again.
// Threads: the main thread, unless a function names another.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/blockd/stores/nvme_store.h"
#include "apps/boot/service_context.h"
#include "apps/services/service_plan.h"
#include "platform/counter_table.h"

namespace bedplate {

// The namespace of a volume, and the settings of its drive. All volumes of a drive must have the
// same drive settings.
struct NvmeSettings {
  std::string address;  // empty: the volume is not on an NVMe drive
  uint32_t space = 1;   // the namespace
  uint32_t queue_depth = 128;
  uint32_t timeout_ms = 10'000;
  std::optional<bool> has_write_cache = {};
};

void describe(CounterTable& table, NvmeCounters& counters);
void describe(CounterTable& table, NvmeQueueCounters& counters);

class NvmeDrives {
 public:
  // Forgets the volumes of an earlier plan.
  void clear() noexcept { drives_.clear(); }
  // Adds a volume `name` of `bytes` (0: all of the namespace), on `shard`. Errors: the drive has
  // other settings for an earlier volume, or an earlier volume uses the same namespace.
  Result<void> add(const std::string& name, const NvmeSettings& settings, uint64_t bytes,
                   uint32_t shard);
  // Plans the resources of all drives.
  void plan(ServicePlan& plan) const;
  // Starts each drive that can be opened, checks it, and stops it. Adds each problem to `problems`.
  void preflight(std::vector<Error>* problems) const;

  Result<void> create(ServiceContext& context);
  // Adds each queue to the loop of its shard.
  Result<void> add_sources(ServiceContext& context);
  // Returns the shard that serves the volume `name`. Requires: the drives were created.
  uint32_t shard_of(const std::string& name);
  // Makes the store of the volume `name`. Requires: the drives were created.
  std::unique_ptr<VolumeStore> make_store(const std::string& name);

  // Starts the drives' queues on `shard`. Threads: that shard.
  void start(uint32_t shard, StreamSockets& sockets) noexcept;

  // Logs the drives' changes of state, and closes drives that the kernel requests back.
  void tick() noexcept;
  // Begins to shut the drives down. Requires: no more requests come. It may be called again.
  void request_shut_down() noexcept;
  bool are_shut_down() const noexcept;

 private:
  struct Space {
    std::string name;  // of the volume
    uint32_t number = 0;
    uint64_t bytes = 0;
    size_t queue = 0;  // its index among the planned queues
  };
  struct Drive {
    NvmeSettings settings;
    std::vector<uint32_t> shards;  // one for each planned queue
    std::vector<Space> spaces;
    NvmeDrive drive;
    NvmeCounters* counters = nullptr;
    NvmeController::State told_state = NvmeController::State::kReady;
    uint64_t told_resets = 0;

    NvmeOptions options() const;
    size_t queue_of(const Space& space) const noexcept { return space.queue % drive.queue_count(); }
  };
  struct FoundSpace {
    Drive* drive = nullptr;
    size_t space = 0;
  };
  FoundSpace find(const std::string& name);
  static Result<void> create(Drive& drive, ServiceContext& context);
  static void tell_grant(const Drive& drive, const ServiceContext& context);
  static Result<void> probe(const Drive& drive);
  static Result<void> check_bytes(const Drive& drive, size_t index, const NvmeNamespace& found);

  std::deque<Drive> drives_;
};

}  // namespace bedplate
