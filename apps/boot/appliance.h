// The appliance: the composition root. It boots in the order of the design, serves until it is
// told to stop, drains, and closes.
//
//     configuration -> plan -> preflight -> reserve -> register -> services -> seal -> run
#pragma once

#include <csignal>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "apps/blockd/block_server.h"
#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "apps/boot/counters_file.h"
#include "apps/boot/listeners.h"
#include "apps/boot/messaging.h"
#include "apps/boot/name_lock.h"
#include "apps/boot/peers.h"
#include "apps/boot/shard.h"
#include "apps/boot/supervisor.h"
#include "transport/uring/page_pin.h"

namespace bedplate {

class Appliance {
 public:
  // `supervisor`: what is to be told; nullptr: nobody. It outlives this object.
  explicit Appliance(Configuration configuration, Supervisor* supervisor = nullptr)
      : configuration_(std::move(configuration)), supervisor_(supervisor) {}
  Appliance(const Appliance&) = delete;
  Appliance& operator=(const Appliance&) = delete;
  ~Appliance() { stop(); }

  // Boots up to the seal and starts to serve. On failure prints every problem and returns false;
  // what was opened is closed again when this object goes.
  // Threads: the main thread, once per process (the pool is not given back).
  bool boot();

  // Waits for SIGTERM or SIGINT, or until a process could not join and the configuration says to
  // stop then; drains. Returns the signal's number, 0 when it was none.
  int serve_until_signal();

  const Configuration& configuration() const noexcept { return configuration_; }

  // For an application: what it exchanges messages with other appliances with, on the shard that
  // [verbs] names; nullptr where there is no [verbs], or no device and none is required. Handlers
  // are set before the shards begin, in Supervisor::about_to_serve.
  // Threads: from about_to_serve() on; what it leads to is the shard's.
  Messenger* peers() noexcept { return peers_.is_there() ? &peers_.messenger() : nullptr; }
  // What sends these peers datagrams, by VerbsProvider::send_datagram; nullptr where [verbs] has no
  // `datagrams`, too. Threads: as peers().
  VerbsProvider* datagrams() noexcept { return peers_.datagrams(); }
  // The memory of [[verbs.export]] `name`, also where nobody can reach it; empty: there is none.
  // Threads: from about_to_serve() on, any.
  std::span<std::byte> exported(std::string_view name) const noexcept {
    return peers_.exported(name);
  }

 private:
  bool check();
  Result<void> reserve();
  Result<void> start_shards();
  void hold_pages();
  Result<void> hand_over_heap();
  void create_services();
  Result<void> create_peers();
  Result<void> create_messaging();
  void apply_limits() noexcept;
  Result<void> seal();
  void report_ways_back() noexcept;
  Result<void> prove_support() noexcept;
  void start_serving();
  void describe_owners() noexcept;
  void refresh_counters() noexcept;
  void refresh_heap_counters() noexcept;
  void drain() noexcept;
  bool is_drained() const noexcept;
  void stop() noexcept;

  Configuration configuration_;
  Supervisor* supervisor_;
  NameLock name_lock_;  // first: it goes after everything that another start of the name could take
  AppliancePlan plan_;
  PagePin page_pin_;
  Listeners listeners_;
  CountersFile counters_;
  const std::byte* heap_parts_[3] = {};  // what the first three owners' memory begins with
  sigset_t stop_signals_ = {};
  // After what they use: shards stop first when the appliance goes.
  std::unique_ptr<BlockServer> block_server_;
  Messaging messaging_;
  Peers peers_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace bedplate
