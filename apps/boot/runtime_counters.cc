#include "apps/boot/runtime_counters.h"

#include <algorithm>
#include <utility>

#include "apps/boot/pool_counters.h"
#include "pinned_pool/no_way_back.h"
#include "transport/verbs/peer_state.h"

namespace bedplate {
namespace {

template <typename Counters>
CounterSet set_of(const char* name, std::string instance = "",
                  std::vector<CounterLabel> labels = {}) {
  return {"",
          name,
          std::move(instance),
          sizeof(Counters),
          described_counters<Counters>(),
          std::move(labels)};
}

template <typename Counters>
CounterSet spare_of(const char* name) {
  CounterSet set = set_of<Counters>(name);
  set.is_spare = true;
  return set;
}

}  // namespace

// ---- shards -------------------------------------------------------------------------------------

void describe(CounterTable& table, ShardCounters& c) {
  describe(table, c.loop);
  table
      .counter("core_moves", c.core_moves, "times",
               "Moves of its thread off its core, by a cpuset or taskset; it is pinned again "
               "where that is possible.")
      .alert_as_it_grows(
          "its thread was moved off its core {core_moves} times so far: find what changes its "
          "cpuset, or runs taskset on it");
  table.boolean("off_core", c.is_off_core, "Its thread may not run on its core.")
      .alert_from(1, "its thread may not run on its core: return the core to the cpuset of its "
                     "control group, or choose another `cpu`");
  describe_rounds(table, c.loop);
  describe(table, c.sockets);
}

// ---- messages -----------------------------------------------------------------------------------

void describe(CounterTable& table, GroupCounters& c) {
  for (uint32_t state = 0; state < kMemberStateCount; ++state) {
    const char* text = to_text(static_cast<MemberState>(state));
    table.gauge((std::string("members_") + text).c_str(), c.members[state], "members",
                (std::string("Member slots that are ") + text + ".").c_str());
  }
  describe(table, c.shm);
}

void describe(CounterTable& table, ShardGroupCounters& c) { describe(table, c.shm); }

void describe(CounterTable& table, PeersCounters& c) {
  table.counter("async_events", c.async_events, "events", "Asynchronous events of the device.");
  table
      .counter("handshakes_refused", c.handshakes_refused, "handshakes",
               "Connection attempts of peers that were refused.")
      .alert_as_it_grows(
          "{handshakes_refused} connection attempts of peers were refused so far: the log says "
          "why; make both configurations agree");
  describe(table, c.verbs);
}

void describe(CounterTable& table, PeerCounters& c) {
  std::string words;
  for (uint32_t state = 0; state <= static_cast<uint32_t>(PeerState::kCutOff); ++state) {
    words += (state == 0 ? "" : "|") + std::string(to_text(static_cast<PeerState>(state)));
  }
  table.state("state", c.state, words.c_str(), "The state of the connection to the peer.")
      .alert_unless(static_cast<uint64_t>(PeerState::kConnected), "it is not connected: {state}");
}

void describe(CounterTable& table, ProcessCounters& c) {
  table.state("state", c.state, kProcessStates,
              "The state of the process that was heard from last.");
  table.gauge("pid", c.pid, "process", "Its process ID; none: none has joined.");
  table.counter("joined", c.joined, "times", "Joins of these processes.");
  table.counter("died", c.died, "times", "Processes that ended without leaving, or were cut off.")
      .no_alert("is_down is set until another one has joined");
  table.boolean("is_down", c.is_down, "More processes have died than have joined since.")
      .alert_from(1, "its process {dead_pid} has died, and no other has joined since");
  table.gauge("dead_pid", c.dead_pid, "process",
              "The process ID of the last that died; none: none has died.");
}

void describe(CounterTable& table, SignalCounters& c) {
  table.counter("ignored", c.ignored, "signals",
                "Ignored signals that would have ended the process; the log names each.");
}

void describe(CounterTable& table, VfioCounters& c) {
  table.gauge("groups", c.groups, "groups", "IOMMU groups that can access the pool.");
  table.gauge(
      "mappings_left", c.mappings_left, "mappings",
      "Further mappings that the kernel would accept; a change after the seal is a defect.");
}

// ---- what an appliance has ----------------------------------------------------------------------

std::string source_instance(const std::string& shard, const std::string& part) {
  return shard + "." + part;
}

static void add_sources(const RuntimeParts& parts, std::vector<CounterSet>* sets) {
  const std::vector<ShardSettings>& shards = parts.configuration.shards;
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto add = [&](const std::string& part) {
      sets->push_back(set_of<SourceCounters>("source", source_instance(shards[i].name, part)));
    };
    add("sockets");
    add("messages");
    add("peers");
    for (const ServiceNeeds& service : parts.services) {
      if (service.shards[i].sources > 0) add(service.name);
    }
  }
}

std::vector<CounterSet> plan_runtime_counters(const RuntimeParts& parts) {
  const Configuration& configuration = parts.configuration;
  std::vector<CounterSet> sets = {set_of<PoolCounters>("pool")};
  for (const WayBack& way_back : all_ways_back())
    sets.push_back(set_of<WayBackCounters>("way_back", way_back.name));
  for (const SegmentPlan& segment : parts.pool.segments) {
    sets.push_back(set_of<SegmentCounters>("segment", segment.owner.text));
  }
  for (const SegmentPlan& segment : parts.pool.segments) {
    const auto add = [&](const OwnerName& owner) {
      sets.push_back(set_of<OwnerCounters>("owner", owner.text));
    };
    if (segment.carves.empty()) add(segment.owner);
    for (const CarvePlan& carve : segment.carves) add(carve.owner);
  }
  sets.push_back(set_of<HeapCounters>("heap"));
  sets.insert(sets.end(), kHeapOwnerCountMax, spare_of<HeapOwnerCounters>("heap_owner"));
  sets.insert(sets.end(), kHeapClassCountMax, spare_of<HeapClassCounters>("heap_class"));
  for (const ShardSettings& shard : configuration.shards) {
    sets.push_back(set_of<ShardCounters>("shard", shard.name,
                                         {{"cpu", std::to_string(shard.cpu)}, {"backend"}}));
  }
  add_sources(parts, &sets);
  for (const std::string& group : parts.groups) {
    sets.push_back(set_of<GroupCounters>("group", group, {{"layout"}}));
  }
  for (const ShardSettings& shard : configuration.shards) {
    if (!parts.has_shard_group) break;
    sets.push_back(set_of<ShardGroupCounters>("shard_group", shard.name));
  }
  for (const ProcessSettings& process : configuration.processes) {
    sets.push_back(set_of<ProcessCounters>("process", process.name));
  }
  sets.push_back(set_of<SignalCounters>("signals"));
  const auto has_devices = [](const ServiceNeeds& service) {
    return !service.vfio_devices.empty();
  };
  if (std::any_of(parts.services.begin(), parts.services.end(), has_devices)) {
    sets.push_back(set_of<VfioCounters>("vfio"));
  }
  if (!parts.peers.is_there) return sets;
  sets.push_back(set_of<PeersCounters>("verbs", "", {{"device", "none that could be used"}}));
  for (const std::string& peer : parts.peers.names) {
    sets.push_back(set_of<PeerCounters>("peer", peer));
  }
  return sets;
}

std::vector<CounterSet> all_runtime_counters() {
  return {set_of<PoolCounters>("pool"),
          set_of<WayBackCounters>("way_back", "WAY"),
          set_of<SegmentCounters>("segment", "OWNER"),
          set_of<OwnerCounters>("owner", "OWNER"),
          set_of<HeapCounters>("heap"),
          set_of<HeapOwnerCounters>("heap_owner", "OWNER"),
          set_of<HeapClassCounters>("heap_class", "BYTES"),
          set_of<ShardCounters>("shard", "SHARD", {{"cpu"}, {"backend"}}),
          set_of<SourceCounters>("source", "SHARD.PART"),
          set_of<GroupCounters>("group", "GROUP", {{"layout"}}),
          set_of<ShardGroupCounters>("shard_group", "SHARD"),
          set_of<ProcessCounters>("process", "PROCESS"),
          set_of<SignalCounters>("signals"),
          set_of<VfioCounters>("vfio"),
          set_of<PeersCounters>("verbs", "", {{"device"}}),
          set_of<PeerCounters>("peer", "PEER")};
}

}  // namespace bedplate
