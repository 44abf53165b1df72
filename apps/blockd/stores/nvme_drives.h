// The NVMe drives of a block service: which volumes lie on which, what each takes, and their life.
//
// A drive has a queue pair for each shard that has volumes on it, and its control on the first of
// these. One that grants fewer is known only once it was started, which is after the plan: then its
// volumes live on as many shards as there are pairs, and what was planned for the others lies idle.
// Before anything is taken it can be asked what it is: for that it is started with memory of the
// moment, and stopped again.
// Threads: the main thread, and the control thread where nothing else is said.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/blockd/stores/nvme_store.h"
#include "apps/boot/counter_table.h"
#include "apps/boot/service_context.h"
#include "apps/boot/service_plan.h"

namespace bedplate {

// Of one volume: where it lies, and how its drive is driven, which all volumes of a drive agree on.
struct NvmeSettings {
  std::string address;  // empty: not on such a drive
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
  // A volume `name` of `bytes` (0: all of it), on `shard`. Errors: volumes of a drive that
  // disagree, or that are one namespace.
  Result<void> add(const std::string& name, const NvmeSettings& settings, uint64_t bytes,
                   uint32_t shard);
  // What they all take.
  void plan(ServicePlan& plan) const;
  // What is wrong with a drive that can be had. It is started for that, and stopped again.
  void preflight(std::vector<Error>* problems) const;

  Result<void> create(ServiceContext& context);
  // Has each queue polled by the loop of its shard.
  Result<void> add_sources(ServiceContext& context);
  // Where the volume that was added as `name` lives. Requires: they were created.
  uint32_t shard_of(const std::string& name);
  // Of the volume that was added as `name`. Requires: they were created.
  std::unique_ptr<VolumeStore> make_store(const std::string& name);

  // Those of `shard`. Threads: that shard.
  void start(uint32_t shard, StreamSockets& sockets) noexcept;

  // Says what has become of them, and closes those that the kernel wants back.
  void tick() noexcept;
  // Has them finish, once nothing is asked of them any more; again is no harm.
  void request_shut_down() noexcept;
  bool are_shut_down() const noexcept;

 private:
  struct Space {
    std::string name;  // of the volume
    uint32_t number = 0;
    uint64_t bytes = 0;
    size_t queue = 0;  // its index, of those that were planned
  };
  struct Drive {
    NvmeSettings settings;
    std::vector<uint32_t> shards;  // of each queue that was planned
    std::vector<Space> spaces;
    NvmeDrive drive;
    NvmeCounters* counters = nullptr;
    NvmeController::State told_state = NvmeController::State::kReady;
    uint64_t told_resets = 0;

    NvmeOptions options() const;
    size_t queue_of(const Space& space) const noexcept { return space.queue % drive.queue_count(); }
  };
  struct Place {
    Drive* drive = nullptr;
    size_t space = 0;
  };
  Place find(const std::string& name);
  static Result<void> create(Drive& drive, ServiceContext& context);
  static void tell_grant(const Drive& drive, const ServiceContext& context);
  static Result<void> probe(const Drive& drive);
  static Result<void> check_bytes(const Drive& drive, size_t index, const NvmeNamespace& found);

  std::deque<Drive> drives_;
};

}  // namespace bedplate
