// The appliance's part in the groups of its configuration: it makes their segments, lets processes
// join, and is itself member 0 of each group, on its first shard.
//
// It has three threads: the control thread of the join server, a thread that closes connections for
// it, and a thread that waits on the appliance's bells for the shard
// (transport/shm/queue/bell_watch.h). Each untrusted process has a group of two, with the appliance
// as the other member.
//
// Invariants, by is_valid() unless another function is named: 1. Groups exist only together with a
// server, and each has counters. 2. A group's table has as many places as its segment, and the
// segment of its FIFO is carved. 3. Each group is for [[group]] or for one untrusted process.
// (make_grants) 4. No process may join before the pool is sealed. (serve)
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/runtime_counters.h"
#include "apps/boot/shard_messenger.h"
#include "apps/configuration/configuration.h"
#include "apps/counters/counters_file.h"
#include "pinned_pool/join/join_server.h"
#include "pinned_pool/join/join_socket.h"
#include "pinned_pool/join/process_terms.h"
#include "pinned_pool/pinned_pool.h"
#include "transport/loop/event_loop.h"
#include "transport/shm/endpoint/shm_provider.h"
#include "transport/shm/membership/group_keeper.h"
#include "transport/shm/membership/group_terms.h"
#include "transport/shm/queue/bell_watch.h"
#include "transport/single_copy/single_copy.h"

namespace bedplate {

class Messaging {
 public:
  Messaging() noexcept = default;
  Messaging(const Messaging&) = delete;
  Messaging& operator=(const Messaging&) = delete;
  ~Messaging() { stop(); }

  // Carves and makes all groups, plans which processes may join, and adds the appliance's members
  // to `messenger`. A message to one of these members rings `doorbell`, which belongs to the loop
  // of the first shard. Both outlast stop(). Does nothing if the configuration has neither
  // [[group]] nor [[process]]. Takes over `joiners`, the listening socket for processes that join
  // (openings.h). `counters`, made for `plan`, outlasts this object. `verbs`: the terms for
  // processes with verbs = true. Requires: `pool` is reserved by `plan`, which is made from
  // `configuration`, and is not sealed; the loop does not run yet; `messenger` is not nullptr if
  // there are groups. Errors: those of the join server, of the bell watch and of ShmProvider; no
  // such user.
  Result<void> create(const Configuration& configuration, const AppliancePlan& plan,
                      PinnedPool& pool, ShardMessenger* messenger, Doorbell& doorbell,
                      const ProcessTerms& verbs, JoinListener* joiners, CountersFile& counters);

  // Lets processes join from now on. Call it after the seal.
  Result<void> serve() noexcept;

  // Tells all members that the pool is gone, and ends the threads. The loop may still run and poll.
  void stop() noexcept;

  // Whether a trusted process failed to join and the configuration says to stop then. Threads: any.
  bool must_stop() const noexcept { return must_stop_.load(std::memory_order_acquire); }

  // Updates the gauges that are not written as they change: how many members are in each state.
  void refresh_counters() noexcept;

  uint32_t group_count() const noexcept { return static_cast<uint32_t>(groups_.size()); }

 private:
  struct Group {
    Group(const OwnerName& its_name, const GroupSegment& its_segment, Segment& its_fifo,
          MembersTable& its_table, const std::vector<SingleCopyKind>& single_copy) noexcept
        : name(its_name),
          segment(its_segment),
          fifo(its_fifo),
          table(its_table),
          terms(its_segment.shape(), single_copy),
          keeper(its_segment, its_table) {}

    OwnerName name;
    GroupSegment segment;
    Segment& fifo;
    MembersTable& table;
    GroupTerms terms;  // handed to processes that join
    ShmGroupKeeper keeper;
    ShmProvider shm;
  };

  bool is_valid() const noexcept;
  void make_groups(const Configuration& configuration, const AppliancePlan& plan, PinnedPool& pool);
  Result<std::vector<ProcessGrant>> make_grants(const Configuration& configuration,
                                                PinnedPool& pool) const;
  void choose_copying(const Configuration& configuration);
  void count_groups(CountersFile& counters);
  void count_processes(const Configuration& configuration, CountersFile& counters);
  Result<void> start_server(const Configuration& configuration, JoinListener* joiners,
                            PinnedPool& pool);
  Result<void> join_groups(PinnedPool& pool, ShardMessenger& messenger, Doorbell& doorbell);
  void heard(const JoinEvent& event) noexcept;
  void count(const JoinEvent& event) noexcept;

  std::string name_;  // of the appliance
  PoolId pool_id_;
  bool stops_at_failure_ = false;
  std::atomic<bool> must_stop_{false};
  ProcessTerms terms_with_verbs_;  // for processes that have verbs = true
  SingleCopyChoice single_copy_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<GroupCounters*> counters_;  // of each group
  struct CountedProcess {
    MemberName name;
    ProcessCounters* counters;
    uint32_t down = 0;  // died, and not replaced yet
  };
  std::vector<CountedProcess> processes_;  // of each [[process]]
  BellWatch watch_;
  std::unique_ptr<JoinServer> server_;
};

}  // namespace bedplate
