#include "apps/boot/runtime_counters.h"

#include <algorithm>

#include "pinned_pool/no_way_back.h"
#include "platform/units.h"
#include "transport/shm/membership/group_layout.h"
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

void describe_messages(CounterTable& table, ShmCounters& c) {
  table.counter("received", c.received, "messages", "Messages that came.");
  table
      .counter("unhandled", c.unhandled, "messages",
               "Received messages that no handler was set for.")
      .sign_as_it_grows(
          "messages come that nothing here handles, {unhandled} by now: have their senders be of "
          "a build that agrees with this one");
  table
      .counter("abandoned", c.abandoned, "slots",
               "Slots that a member claimed and did not publish in time.")
      .sign_as_it_grows(
          "members begin messages and do not end them, {abandoned} by now: look for one that died "
          "or was stopped in the middle");
  table.counter("cut_off", c.cut_off, "members", "Members that wrote nonsense.")
      .sign_as_it_grows(
          "members that wrote nonsense are cut off, {cut_off} by now: the log names them; mend "
          "that program, then start it again");
  table
      .counter("memory_waits", c.memory_waits, "polls",
               "Polls that stopped at a message of somebody new for want of memory.")
      .sign_as_it_grows(
          "newcomers' messages wait for memory, {memory_waits} times by now: have a larger [pool] "
          "bytes, or fewer members");
  table.counter("boxes_granted", c.boxes_granted, "boxes", "Fast boxes given to busy senders.");
  table.counter("boxes_returned", c.boxes_returned, "boxes",
                "Fast boxes taken back from idle ones.");
}

void describe_datagrams(CounterTable& table, DatagramCounters& c) {
  table.counter("datagrams_sent", c.sent, "datagrams", "Given to the device.");
  table.counter("datagrams_received", c.received, "datagrams", "Came, and were good.");
  table
      .counter("datagrams_unknown", c.strange, "datagrams",
               "Dropped: of nobody who is connected here now.")
      .sign_as_it_grows(
          "datagrams come of nobody who is connected, {datagrams_unknown} dropped by now: look "
          "for a peer that was given up, or who else sends to this queue");
  table
      .counter("datagrams_malformed", c.malformed, "datagrams",
               "Dropped: from a peer, too short or with a header that is none.")
      .sign_as_it_grows(
          "peers send datagrams of no sense, {datagrams_malformed} dropped by now: have all peers "
          "be of builds that agree");
  table
      .counter("datagrams_failed", c.failed, "datagrams",
               "Sends that the device did not take, or could not end.")
      .sign_as_it_grows(
          "the device does not send, {datagrams_failed} datagrams by now: look at its port "
          "(`rdma link`), and at the kernel's log");
  table
      .counter("datagram_resets", c.renewed, "resets",
               "The queue pair failed and was brought up again; what lay in it is lost.")
      .sign_as_it_grows(
          "its queue of datagrams fails, {datagram_resets} times by now, and loses what lies in "
          "it: look at the device in the kernel's log");
}

}  // namespace

// ---- the pool and the heap ----------------------------------------------------------------------

void describe(CounterTable& table, PoolCounters& c) {
  table.gauge("total_bytes", c.total_bytes, "bytes", "Memory that the pool has taken.");
  table.boolean("sealed", c.is_sealed, "Nothing of the pool moves any more.");
  table.boolean("enforced_by_kernel", c.is_enforced_by_kernel,
                "The kernel keeps the mappings as they are, by mseal.");
  table.counter("registrations", c.registrations, "registrations",
                "Memory made known to devices and rings.");
  table
      .counter("registrations_after_seal", c.registrations_after_seal, "registrations",
               "Registrations after the seal: 0, or it is a defect.")
      .sign_as_it_grows(
          "memory was registered after the seal, {registrations_after_seal} times: this is a "
          "defect; report it with the log and the configuration");
  table
      .counter("allocations_refused", c.allocations_refused, "requests",
               "Requests for heap memory that got none.")
      .refusals_of("pool.bytes")
      .sign_as_it_grows("there was no heap memory for {allocations_refused} requests: the log says "
                        "what has it, a larger [pool] bytes gives more");
  table.counter("allocations_checked", c.allocations_checked, "requests",
                "Debug builds: blocks that were seen to lie in the pool.");
  table
      .counter("bad_pointers_refused", c.bad_pointers_refused, "calls",
               "Calls of free and the like with a pointer that is none of a block.")
      .sign_as_it_grows(
          "free() gets pointers that are none of a block, {bad_pointers_refused} by now: the log "
          "says who calls; mend that service or library");
  table.flags("support_level", c.support_level, "FREE|CHUNK|MUNMAP",
              "The properties of this process' malloc that boot has proved.");
}

void describe(CounterTable& table, WayCounters& c) {
  table.state("state", c.state, "stopped|refused in libc only|open",
              "The state of this way to take memory from the pool.");
}

void describe(CounterTable& table, SegmentCounters& c) {
  table.gauge("bytes", c.bytes, "bytes", "How long the segment is.");
  table.gauge("page_bytes", c.page_bytes, "bytes", "The size of its pages.");
  table.gauge("node", c.node, "node", "The NUMA node that it was asked for; none: any.");
  table.gauge("address", c.address, "address", "The address of its first byte.");
  table.gauge("device", c.device, "device", "The memfd's st_dev.");
  table.gauge("inode", c.inode, "inode", "The memfd's st_ino.");
  table.boolean("locked", c.is_locked, "It is locked by mlock; hugepages need no lock.");
  table.boolean("writable", c.is_writable, "The appliance may write to it.");
  table.boolean("write_seal", c.has_write_seal,
                "Nobody can map it writable any more; if not, its writers can punch holes.");
}

void describe(CounterTable& table, OwnerCounters& c) {
  table.gauge("bytes", c.bytes, "bytes", "Memory that the owner has planned.");
  table.gauge("used_bytes", c.used_bytes, "bytes",
              "The part of it that is used; none: its owner has it as a whole, or its process "
              "alone knows.");
}

void describe(CounterTable& table, HeapCounters& c) {
  table.gauge("bytes", c.bytes, "bytes", "Memory for all owners, beside the reserve.");
  table
      .gauge("used_peak_bytes", c.used_peak_bytes, "bytes",
             "The most that all owners were charged at once; none: malloc is another's.")
      .peak_of("pool.bytes", "Requests for heap memory get none, the large ones first.", "bytes");
  table.gauge("free_bytes", c.free_bytes, "bytes", "Memory that nobody has taken.")
      .sign_below(10, "bytes",
                  "it is nearly exhausted: {free_bytes} of {bytes} are free, and {largest_owner} "
                  "has the most");
  table.gauge("largest_free_bytes", c.largest_free_bytes, "bytes",
              "The most that one request can have of it.");
  table.text("largest_owner", c.largest_owner, "The owner that has the most of it, and how much.");
}

void describe(CounterTable& table, HeapOwnerCounters& c) {
  table.gauge("used_bytes", c.used_bytes, "bytes", "Heap memory that the owner is charged.");
  table
      .gauge("used_peak_bytes", c.used_peak_bytes, "bytes",
             "The most that it was charged at once; none: malloc is another's.")
      .peak_of("limit.bytes", "Its requests for heap memory get none.");
  table.gauge("limit_bytes", c.limit_bytes, "bytes",
              "The most that it may have; none: as much as there is.");
  table.counter("refused", c.refused, "requests", "Requests refused because of the limit.")
      .refusals_of("limit.bytes")
      .sign_as_it_grows("its limit of {limit_bytes} has refused {refused} requests for memory");
}

void describe(CounterTable& table, HeapClassCounters& c) {
  table.gauge("used_bytes", c.used_bytes, "bytes", "In blocks of this size that are in use.");
  table.gauge("free_bytes", c.free_bytes, "bytes", "In blocks of this size that can be had.");
}

// ---- shards -------------------------------------------------------------------------------------

void describe(CounterTable& table, ShardCounters& c) {
  table.counter("iterations", c.loop.iterations, "rounds", "Rounds of the event loop.")
      .sign_as_it_stands("asleep", "it is neither asleep nor going on: something keeps it");
  table.counter("sleeps", c.loop.sleeps, "sleeps", "How often it slept.");
  table.counter(
      "busy_ns", c.loop.busy_ns, "ns",
      "Time in which anything had work, and in which the kernel worked for it as it slept.");
  table.counter("spin_ns", c.loop.spin_ns, "ns",
                "Time in which it looked for work and found none. The rest it slept.");
  table.boolean("asleep", c.loop.is_asleep, "It sleeps now.");
  table.counter("calls", c.loop.calls, "calls", "Calls that other threads had it make.");
  table
      .counter("stalls", c.loop.stalled.stalls, "stalls",
               "How often something kept it for longer than stall_ms.")
      .sign_as_it_grows("something keeps it for too long, {stall_longest_ns} at most");
  table.gauge("stall_longest_ns", c.loop.stalled.longest_ns, "ns", "The longest of these.")
      .no_sign("stalls has it in its words");
  table
      .counter("call_stalls", c.loop.call_stalls, "stalls",
               "Stalls that a call from another thread had a part in.")
      .no_sign("stalls has them");
  table.counter("timer_stalls", c.loop.timer_stalls, "stalls", "Stalls that a timer had a part in.")
      .no_sign("stalls has them");
  table.counter("preemptions", c.loop.stalled.preemptions, "times",
                "How often it waited for its core, which ran something else, for so long.");
  table.counter(
      "standstills", c.loop.stalled.standstills, "times",
      "How often the whole process stood still for so long: stopped, frozen or throttled.");
  table
      .counter("core_moves", c.core_moves, "times",
               "How often its thread was moved off its core, by a cpuset or taskset; it was pinned "
               "again where that is possible.")
      .sign_as_it_grows("something moves its thread off its core, {core_moves} times by now: see "
                        "who changes its cpuset, or runs taskset on it");
  table.boolean("off_core", c.is_off_core, "Its thread may not run on its core.")
      .sign_from(1, "its thread may not run on its core: give that back to the cpuset of its "
                    "control group, or choose another `cpu`");
  table.histogram("round_ns", c.loop.round, "ns", "A round with work, of every 16th such round.");
  table.counter("system_calls", c.sockets.system_calls, "calls",
                "System calls of the sockets: io_uring_enter, recvmmsg and the like.");
  table.counter("accepts", c.sockets.accepts, "connections", "Connections taken.");
  table.gauge("slow_clients", c.sockets.slow_clients, "connections",
              "Those that have taken nothing of an answer for a second or more.");
  table
      .gauge("slow_client_ns", c.sockets.slow_client_ns, "ns",
             "For how long the slowest of these has not; 0: there is none.")
      .sign_from(5 * kNsPerSecond,
                 "the client {slow_client} has taken nothing of its answer for {slow_client_ns} "
                 "({slow_clients} in all)");
  table.text("slow_client", c.sockets.slow_client, "Which one that is.");
  table.counter("received_bytes", c.sockets.received_bytes, "bytes", "Received from sockets.");
  table.counter("sent_bytes", c.sockets.sent_bytes, "bytes", "Sent to sockets.");
  table.counter("received_datagrams", c.sockets.received_datagrams, "datagrams",
                "Received; each of those that the system had joined.");
  table.counter("sent_datagrams", c.sockets.sent_datagrams, "datagrams", "Sent.");
  table
      .counter("dropped_datagrams", c.sockets.dropped_datagrams, "datagrams",
               "Dropped by the system, which held as many as it may.")
      .sign_as_it_grows(
          "the kernel drops what it does not take in time, {dropped_datagrams} datagrams by now: "
          "raise receive_queue_bytes, or give it a core of its own");
  table
      .counter("truncated_datagrams", c.sockets.truncated_datagrams, "datagrams",
               "Received, but larger than the buffer.")
      .sign_as_it_grows(
          "datagrams come that are longer than their buffer, {truncated_datagrams} by now: raise "
          "buffer_bytes, or have shorter ones sent");
  table
      .counter("cutting_refusals", c.sockets.cutting_refusals, "sockets",
               "Destinations whose datagrams the system would not cut, so that each is sent by "
               "itself.")
      .sign_as_it_grows(
          "the kernel does not cut the datagrams of {cutting_refusals} sockets, which costs time: "
          "`ethtool -K DEVICE tx on`, or another device");
}

void describe(CounterTable& table, SourceCounters& c) {
  table.histogram("round_ns", c.round, "ns",
                  "Its share of a round in which it has work, of every 16th such round.");
  table
      .counter("stalls", c.stalls, "stalls",
               "Stalls of the shard that it had a part in: it took so long or, where that is not "
               "known, had work.")
      .no_sign("those of the shard have them");
}

// ---- messages -----------------------------------------------------------------------------------

void describe(CounterTable& table, GroupCounters& c) {
  for (uint32_t state = 0; state < kMemberStateCount; ++state) {
    const char* text = to_text(static_cast<MemberState>(state));
    table.gauge((std::string("members_") + text).c_str(), c.members[state], "members",
                (std::string("Places of members that are ") + text + ".").c_str());
  }
  describe_messages(table, c.shm);
}

void describe(CounterTable& table, ShardGroupCounters& c) { describe_messages(table, c.shm); }

void describe(CounterTable& table, PeersCounters& c) {
  table.counter("async_events", c.async_events, "events", "Events of the device.");
  table
      .counter("handshakes_refused", c.handshakes_refused, "handshakes",
               "Attempts to connect that were refused here.")
      .sign_as_it_grows(
          "peers are refused here, {handshakes_refused} attempts by now: the log says why; have "
          "both ends' configurations agree");
  table.counter("sent", c.verbs.sent, "messages", "Active messages and loans.");
  table.counter("received", c.verbs.received, "messages", "Messages that came.");
  table
      .counter("unhandled", c.verbs.unhandled, "messages",
               "Messages and datagrams that no handler was set for.")
      .sign_as_it_grows(
          "messages come that nothing here handles, {unhandled} by now: have their senders be of "
          "a build that agrees with this one");
  table
      .counter("resent", c.verbs.resent, "messages",
               "After a loss, to the same instance, which had not got them.")
      .no_sign("nothing of it is lost, and broken has its cause");
  table
      .counter("lost", c.verbs.lost, "messages",
               "Accepted, and not consumed by an instance that is no more.")
      .sign_as_it_grows("a peer has ended before it had all, and {lost} messages are lost by now: "
                        "its log says why it did, those who sent them must do so again");
  table.counter("connected", c.verbs.connected, "connections", "Connections that were made.");
  table.counter("broken", c.verbs.broken, "connections", "Connections that broke.")
      .sign_as_it_grows(
          "connections to peers break, {broken} by now: look at the cable, the switch and the "
          "peer's log");
  table.counter("cut_off", c.verbs.cut_off, "peers", "Peers that broke the rules.")
      .sign_as_it_grows(
          "peers that broke the rules are cut off, {cut_off} by now: the log names them; have "
          "both be of builds that agree");
  table.counter("bounced_bytes", c.verbs.bounced_bytes, "bytes", "Copied through bounce buffers.");
  table.counter("kicks", c.verbs.kicks, "requests",
                "Posted only because none had ended for a while.");
  describe_datagrams(table, c.verbs.datagrams);
}

void describe(CounterTable& table, PeerCounters& c) {
  std::string words;
  for (uint32_t state = 0; state <= static_cast<uint32_t>(PeerState::kCutOff); ++state) {
    words += (state == 0 ? "" : "|") + std::string(to_text(static_cast<PeerState>(state)));
  }
  table.state("state", c.state, words.c_str(), "How far the connection to the peer is.")
      .sign_unless(static_cast<uint64_t>(PeerState::kConnected), "it is not connected: {state}");
}

void describe(CounterTable& table, ProcessCounters& c) {
  table.state("state", c.state, kProcessStates, "The state of the process heard last.");
  table.gauge("pid", c.pid, "process", "Its number; none: none has joined.");
  table.counter("joined", c.joined, "times", "How often one has joined.");
  table.counter("died", c.died, "times", "How often one has ended without a word, or was cut off.")
      .no_sign("is_down says so until one has joined in its place");
  table.boolean("is_down", c.is_down, "More have died than have joined since.")
      .sign_from(1, "its process {dead_pid} has died, and none has joined in its place");
  table.gauge("dead_pid", c.dead_pid, "process", "That of the last that died; none: none has.");
}

void describe(CounterTable& table, SignalCounters& c) {
  table.counter("ignored", c.ignored, "signals",
                "Came and would have ended the process, but mean nothing here; the log has each.");
}

void describe(CounterTable& table, VfioCounters& c) {
  table.gauge("groups", c.groups, "groups", "IOMMU groups that reach the pool.");
  table.gauge("mappings_left", c.mappings_left, "mappings",
              "How many more the kernel would take; the same from the seal on, or it is a defect.");
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
  for (const Way& way : all_ways()) sets.push_back(set_of<WayCounters>("way_back", way.name));
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
          set_of<WayCounters>("way_back", "WAY"),
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
