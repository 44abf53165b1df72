// The appliance: the composition root. It boots in the order of the design, serves until it is
// told to stop, drains, and closes.
//
//     boot():
//       signals_.hold()     block the signals that stop it, or are counted
//       catch_appliance_crashes()   from here on a crash leaves a record
//       plan_all()          add up all needs; segment 0 grows no more
//       check()             forbidden calls, or else all that is missing, in one report; then the
//                           appliance holds its name, and has its sockets and files open
//       take_all():         in this order; it ends between two steps if it is told to stop
//         reserve()           the memory of the plan, locked; the heap gets its part
//         prepare_services()  all that needs root's rights; the keys of their TLS are read
//         change_user()       root is given up
//         start_shards()      a thread for each, which waits; its devices register the pool
//         make_messengers(), create_peers(), create_messaging()
//         create_services()   they carve what they have planned
//         seal()              nothing is carved any more; malloc is proved, the maps are audited
//         tell_services()     they see the sealed pool
//         start_serving()     each shard starts its services, and runs its loop
//         messaging_.serve()  processes may join
//     serve_until_signal():
//       until a signal stops it: signals_.wait(), refresh_counters(), tick(), drains_.turn()
//       drain()             until services and peers are drained, or drain_timeout_ms are over
//       stop()              messaging, shards, peers; then the services hear that it has stopped
//
// Invariants: 1. Steps are done in the order of Step, each once; the stop may follow any step, and
// may be repeated. (reached) After each step, by is_valid(): 2. The name is locked before anything
// is taken under it. 3. Boot makes these once, before the seal, as planned: the pool's segments, a
// shard for each [[shard]], a messenger or none for each shard, a context for each service. 4. The
// runtime has carved all that it planned for itself, once its groups are there. 5. The pool is
// sealed before a shard runs. 6. No loop runs once the appliance has stopped, so none runs when the
// peers are closed.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/appliance_signals.h"
#include "apps/boot/core_watch.h"
#include "apps/boot/messaging.h"
#include "apps/boot/openings.h"
#include "apps/boot/peers.h"
#include "apps/boot/pool_counters.h"
#include "apps/boot/pool_sealing.h"
#include "apps/boot/runtime_counters.h"
#include "apps/boot/service_context.h"
#include "apps/boot/shard.h"
#include "apps/boot/shard_group.h"
#include "apps/boot/shard_messenger.h"
#include "apps/boot/supervision.h"
#include "apps/configuration/configuration.h"
#include "apps/counters/counter_alerts.h"
#include "apps/counters/counters_file.h"
#include "apps/services/service.h"
#include "apps/services/service_drains.h"
#include "apps/services/tls_part.h"
#include "platform/name_lock.h"
#include "transport/vfio/vfio_pool.h"

namespace bedplate {

class Appliance {
 public:
  // The services of `configuration` outlive this object.
  explicit Appliance(Configuration configuration) : configuration_(std::move(configuration)) {}
  Appliance(const Appliance&) = delete;
  Appliance& operator=(const Appliance&) = delete;
  ~Appliance();

  // Boots up to the seal and starts to serve; then returns nothing. On failure, prints the problems
  // and returns the exit code: the largest of their kinds. Returns 0 if a signal (SIGTERM, SIGINT)
  // stops it at any step of the boot. The destructor closes all that was opened. Threads: the main
  // thread, once per process (the pool is not given back).
  [[nodiscard]] std::optional<int> boot();

  // Waits for a signal that stops it (appliance_signals.h), or for a failed join if the
  // configuration says to stop then. Drains, and stops. Returns the signal's number, or 0 if no
  // signal caused the stop. Requires: boot() has returned nothing.
  int serve_until_signal();

  // True after the stop if the kernel still works on files: it reads or writes memory of services,
  // as the log says, or a service's thread hangs there. The process then ends without destroying
  // the services.
  bool has_left_operations() const noexcept;

 private:
  // The last step that was done.
  enum class Step : uint8_t {
    kNothing,
    kPlan,
    kCheck,
    kReserve,
    kShards,
    kMessengers,
    kPeers,
    kMessaging,
    kServices,
    kSeal,
    kServing,
    kStopped,  // after any of them
  };

  void reached(Step step) noexcept;
  bool is_valid() const noexcept;
  bool has_carved_its_own() const noexcept;
  bool has_running_shards() const noexcept;
  static int fail(const std::vector<Error>& problems);
  Result<AppliancePlan> plan_all();
  std::vector<Error> check();
  Result<void> take_all();
  Result<void> check_stop() const noexcept;
  Result<void> prepare_services();
  Result<void> change_user();
  Result<void> tell_services();
  Result<void> reserve();
  std::vector<FileOptions> files_on(uint32_t shard);
  Result<void> start_shards();
  SourceCounters* source_counters(uint32_t shard, const char* part);
  Result<void> make_messengers();
  Result<void> create_services();
  Result<void> create_peers();
  Result<void> create_messaging();
  Result<void> seal();
  Result<void> call_services(const char* doing, Result<void> (Service::*call)());
  void start_serving();
  void refresh_counters() noexcept;
  void drain() noexcept;
  void tick() noexcept;
  std::string undrained() const;
  uint64_t file_patience_ns() const noexcept;
  void stop() noexcept;

  Configuration configuration_;
  Supervision supervision_;
  Step step_ = Step::kNothing;
  bool has_left_threads_ = false;
  NameLock name_lock_;  // destroyed after all that it protects, so declared before it
  AppliancePlan plan_;
  PoolSealing sealing_;
  VfioPool vfio_{process_pool()};
  VfioCounters* vfio_counters_ = nullptr;  // nullptr: no service has planned a device
  Openings opened_;
  CountersFile counters_;
  PoolCountersKeeper pool_counters_;
  CounterAlerts alerts_;
  CoreWatch core_watch_;
  ServiceDrains drains_;
  ApplianceSignals signals_;
  std::vector<std::unique_ptr<TlsServer>> tls_;  // of each service; nullptr: none
  // Declared after what they use, so that the shards stop first at destruction.
  std::vector<ShardParts> shard_parts_;  // lent to the contexts
  std::vector<std::unique_ptr<ServiceContext>> contexts_;
  std::vector<std::unique_ptr<ShardMessenger>> messengers_;  // of each shard; nullptr: none
  ShardGroup shard_group_;
  Messaging messaging_;
  std::unique_ptr<Peers> peers_ = make_peers();
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace bedplate
