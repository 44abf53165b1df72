#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

#include "alloc/support_level.h"
#include "apps/program/commands.h"
#include "apps/program/json_output.h"
#include "apps/program/watch_stats.h"
#include "apps/boot/counters_file.h"
#include "pinned_pool/audit.h"
#include "pinned_pool/no_way_back.h"

namespace bedplate {
namespace {

std::string audit_text(const CountersSnapshot& snapshot) {
  if (!snapshot.is_running) return "the appliance is not running: it crashed or was killed";
  const auto report = audit_maps(snapshot.layout->map, snapshot.layout->pid);
  if (report.ok()) return const_cast<Result<AuditReport>&>(report).value().text;
  return std::string(report.error().doing) + ": " + report.error().answer;
}

// The names of the ways to take memory from the pool that are in `state`.
Json ways_json(uint64_t stoppers, WayState state) {
  Json names = Json::array();
  for (const Way& way : all_ways()) {
    if (state_of(way, static_cast<uint32_t>(stoppers)) == state) names.push_back(way.name);
  }
  return names;
}

// The segments whose memfd takes further writers: those that joined processes may write.
Json without_write_seal_json(const PoolMap& map) {
  Json owners = Json::array();
  for (uint32_t i = 0; i < map.segment_count; ++i) {
    if (map.segments[i].has_write_seal == 0) owners.push_back(map.segments[i].owner.text);
  }
  return owners;
}

Json pool_json(const CountersSnapshot& snapshot) {
  const CountersLayout& layout = *snapshot.layout;
  return {{"sealed", layout.map.is_sealed != 0},
          {"enforced_by_kernel", (layout.stoppers.read() & kMappingSealStops) != 0},
          {"ways_back_open", ways_json(layout.stoppers.read(), WayState::kOpen)},
          {"ways_back_refused_in_libc_only",
           ways_json(layout.stoppers.read(), WayState::kStoppedInLibc)},
          {"without_write_seal", without_write_seal_json(layout.map)},
          {"total_bytes", layout.pool_total_bytes.read()},
          {"registrations", layout.registrations.read()},
          {"registrations_after_seal", layout.registrations_after_seal.read()},
          {"allocations_refused", layout.exhaustions.read()},
          {"bad_pointers_refused", layout.bad_pointers.read()},
          {"allocations_checked", layout.checked_pointers.read()},
          {"support_level", support_level_text(static_cast<SupportLevel>(
                                static_cast<uint32_t>(layout.support_level.read())))},
          {"audit", audit_text(snapshot)}};
}

Json segments_json(const PoolMap& map) {
  Json segments = Json::array();
  for (uint32_t i = 0; i < map.segment_count; ++i) {
    const PoolMapSegment& segment = map.segments[i];
    segments.push_back({{"owner", segment.owner.text},
                        {"bytes", segment.bytes},
                        {"page_bytes", segment.page_bytes},
                        {"node", node_json(static_cast<int>(segment.node))},
                        {"write_seal", segment.has_write_seal != 0}});
  }
  return segments;
}

Json owners_json(const CountersLayout& layout) {
  Json owners = Json::array();
  for (uint32_t i = 0; i < layout.owner_count; ++i) {
    const uint64_t used_bytes = layout.owners[i].used_bytes.read();
    owners.push_back({{"owner", layout.owners[i].name.text},
                      {"bytes", layout.owners[i].bytes.read()},
                      {"used_bytes", used_bytes == kUnknownBytes ? Json() : Json(used_bytes)}});
  }
  return owners;
}

Json heap_owners_json(const CountersLayout& layout) {
  Json owners = Json::array();
  const uint64_t count = std::min<uint64_t>(layout.heap_owner_count.read(), kHeapOwnerCountMax);
  for (uint64_t i = 0; i < count; ++i) {
    const HeapOwnerCounters& owner = layout.heap_owners[i];
    Json json = {{"owner", owner.name.text},
                 {"used_bytes", owner.used_bytes.read()},
                 {"refused", owner.refused.read()}};
    if (owner.limit_bytes.read() != kNoLimit) json["limit_bytes"] = owner.limit_bytes.read();
    owners.push_back(std::move(json));
  }
  return owners;
}

Json heap_json(const HeapCounters& heap) {
  Json classes = Json::array();
  for (uint64_t i = 0; i < std::min<uint64_t>(heap.class_count.read(), kHeapClassCountMax); ++i) {
    const HeapClassCounters& each = heap.classes[i];
    Json json = {{"used_bytes", each.used_bytes.read()}, {"free_bytes", each.free_bytes.read()}};
    // What is larger has no class of its own.
    const uint64_t block_bytes = each.block_bytes.read();
    json["block_bytes"] = block_bytes != 0 ? Json(block_bytes) : Json("large");
    classes.push_back(std::move(json));
  }
  return {{"free_bytes", heap.free_bytes.read()},
          {"largest_free_bytes", heap.largest_free_bytes.read()},
          {"size_classes", std::move(classes)}};
}

Json shards_json(const CountersLayout& layout) {
  Json shards = Json::array();
  for (uint32_t i = 0; i < layout.shard_count; ++i) {
    const ShardCounters& shard = layout.shards[i];
    shards.push_back({{"name", shard.name.text},
                      {"cpu", shard.cpu},
                      {"backend", shard.backend},
                      {"iterations", shard.loop.iterations.read()},
                      {"sleeps", shard.loop.sleeps.read()},
                      {"system_calls", shard.sockets.system_calls.read()},
                      {"accepts", shard.sockets.accepts.read()},
                      {"received_bytes", shard.sockets.received_bytes.read()},
                      {"sent_bytes", shard.sockets.sent_bytes.read()}});
  }
  return shards;
}

Json groups_json(const CountersLayout& layout) {
  Json groups = Json::array();
  for (uint32_t i = 0; i < layout.group_count; ++i) {
    const GroupCounters& group = layout.groups[i];
    Json members;
    for (uint32_t state = 0; state < kMemberStateCount; ++state) {
      members[to_text(static_cast<MemberState>(state))] = group.members[state].read();
    }
    groups.push_back({{"name", group.name.text},
                      {"layout", group_kind_text(group.kind)},
                      {"members", std::move(members)},
                      {"received", group.shm.received.read()},
                      {"unhandled", group.shm.unhandled.read()},
                      {"torn", group.shm.torn.read()},
                      {"cut_off", group.shm.cut_off.read()},
                      {"boxes_granted", group.shm.boxes_granted.read()},
                      {"boxes_returned", group.shm.boxes_returned.read()}});
  }
  return groups;
}

// Absent from what a process without a device has: all but the device.
Json verbs_json(const PeersCounters& peers) {
  if (peers.device[0] == '\0') return {{"device", "none that could be used"}};
  const VerbsCounters& c = peers.verbs;
  Json list = Json::array();
  for (uint32_t i = 0; i < std::min(peers.peer_count, kVerbsPeerCountMax); ++i) {
    const auto state = static_cast<PeerState>(peers.peers[i].state.read());
    list.push_back({{"name", peers.peers[i].name.text}, {"state", to_text(state)}});
  }
  Json json = {{"device", peers.device},
               {"async_events", peers.async_events.read()},
               {"exchanges_refused", peers.refused.read()},
               {"sent", c.sent.read()},
               {"received", c.received.read()},
               {"unhandled", c.unhandled.read()},
               {"resent", c.resent.read()},
               {"lost", c.lost.read()},
               {"connected", c.connected.read()},
               {"broken", c.broken.read()},
               {"cut_off", c.cut_off.read()},
               {"landed_bytes", c.landed.read()},
               {"nudged", c.nudged.read()}};
  if (peers.has_datagrams != 0) {
    const DatagramCounters& d = c.datagrams;
    json["datagrams_sent"] = d.sent.read();
    json["datagrams_received"] = d.received.read();
    json["datagrams_strange"] = d.strange.read();
    json["datagrams_malformed"] = d.malformed.read();
    json["datagrams_failed"] = d.failed.read();
    json["datagrams_renewed"] = d.renewed.read();
  }
  json["peers"] = std::move(list);
  return json;
}

Json histogram_json(const Histogram& histogram) {
  Json json = {{"count", histogram.count()}};
  const std::pair<const char*, double> shares[] = {
      {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};
  for (const auto& [name, share] : shares) json[name] = histogram.percentile(share);
  return json;
}

// By service: its counters, and below the name of a set those of each instance.
Json services_json(const CountersSnapshot& snapshot) {
  Json services = Json::object();
  for (const CounterSetRecord& set : snapshot.sets()) {
    Json& service = services[set.owner.text];
    const bool is_one_of_several = set.instance.text[0] != '\0';
    Json& place = is_one_of_several ? service[set.name.text][set.instance.text] : service;
    for (const CounterRecord& counter : snapshot.counters(set)) {
      const bool is_histogram =
          static_cast<CounterKind>(counter.kind) == CounterKind::kHistogram;
      place[counter.name] = is_histogram ? histogram_json(snapshot.histogram(set, counter))
                                         : Json(snapshot.value(set, counter));
    }
  }
  return services;
}

Json stats_json(const CountersSnapshot& snapshot) {
  const CountersLayout& layout = *snapshot.layout;
  Json json;
  json["name"] = layout.appliance.text;
  json["pid"] = layout.pid;
  json["running"] = snapshot.is_running;
  json["pool"] = pool_json(snapshot);
  json["segments"] = segments_json(layout.map);
  json["owners"] = owners_json(layout);
  json["heap"] = heap_json(layout.heap);
  json["heap_owners"] = heap_owners_json(layout);
  json["shards"] = shards_json(layout);
  if (layout.group_count != 0) json["groups"] = groups_json(layout);
  if (layout.has_verbs != 0) json["verbs"] = verbs_json(layout.peers);
  if (layout.set_count != 0) json["services"] = services_json(snapshot);
  return json;
}

// Counts by their names, of those that are not 0: "2 free, 1 alive".
std::string counts_text(const Json& counts) {
  std::string text;
  for (const auto& [name, count] : counts.items()) {
    if (count != 0) text += (text.empty() ? "" : ", ") + count.dump() + " " + name;
  }
  return text;
}

// "key value" lines, one group after the other; an array's elements are headed by their first
// member.
void print_group(const std::string& title, const Json& group) {
  std::printf("%s\n", title.c_str());
  for (const auto& [key, value] : group.items()) {
    const std::string text = value.is_string()   ? value.get<std::string>()
                             : value.is_object() ? counts_text(value)
                                                 : value.dump();
    std::printf("  %-26s %s\n", key.c_str(), text.c_str());
  }
}

// Its own counters first, then those of what it has several of.
void print_service(const std::string& name, const Json& service) {
  Json own = Json::object();
  // A histogram is an object of numbers, a set of several one of objects.
  const auto is_several = [](const Json& value) {
    return value.is_object() && !value.empty() && value.begin()->is_object();
  };
  for (const auto& [key, value] : service.items()) {
    if (!is_several(value)) own[key] = value;
  }
  print_group(name, own);
  for (const auto& [set, instances] : service.items()) {
    if (!is_several(instances)) continue;
    for (const auto& [instance, counters] : instances.items()) {
      print_group(name + " " + set + " " + instance, counters);
    }
  }
}

void print_heap(const Json& json) {
  const Json& heap = json["heap"];
  std::printf("heap\n  %-26s %14" PRIu64 " bytes, %" PRIu64 " of them in one piece\n", "free",
              heap["free_bytes"].get<uint64_t>(), heap["largest_free_bytes"].get<uint64_t>());
  for (const Json& owner : json["heap_owners"]) {
    std::printf("  %-26s %14" PRIu64 " bytes", owner["owner"].get<std::string>().c_str(),
                owner["used_bytes"].get<uint64_t>());
    if (owner.contains("limit_bytes")) {
      std::printf(" of %" PRIu64 ", %" PRIu64 " requests refused",
                  owner["limit_bytes"].get<uint64_t>(), owner["refused"].get<uint64_t>());
    }
    std::printf("\n");
  }
  for (const Json& each : heap["size_classes"]) {
    const Json& block = each["block_bytes"];
    std::printf("  blocks of %-16s %14" PRIu64 " used, %" PRIu64 " free\n",
                block.is_string() ? block.get<std::string>().c_str() : block.dump().c_str(),
                each["used_bytes"].get<uint64_t>(), each["free_bytes"].get<uint64_t>());
  }
}

void print_verbs(Json verbs) {
  const Json peers = verbs.value("peers", Json::array());
  verbs.erase("peers");
  print_group("verbs", verbs);
  for (const Json& peer : peers) {
    std::printf("  peer %-21s %s\n", peer["name"].get<std::string>().c_str(),
                peer["state"].get<std::string>().c_str());
  }
}

void print_text(const Json& json) {
  std::printf("%s: pid %s, %s\n", json["name"].get<std::string>().c_str(),
              json["pid"].dump().c_str(),
              json["running"].get<bool>() ? "running" : "NOT running: its last counters");
  print_group("pool", json["pool"]);
  std::printf("segments\n");
  for (const Json& segment : json["segments"]) {
    const Json& node = segment["node"];
    std::printf("  %-26s %14" PRIu64 " bytes, pages of %s, %s%s\n",
                segment["owner"].get<std::string>().c_str(), segment["bytes"].get<uint64_t>(),
                format_bytes(segment["page_bytes"].get<uint64_t>()).text,
                format_node(node.is_null() ? kAnyNode : node.get<int>()).text,
                segment["write_seal"].get<bool>()
                    ? ""
                    : "; no write seal: who may write it can punch holes into it");
  }
  std::printf("owners\n");
  for (const Json& owner : json["owners"]) {
    const Json& used = owner["used_bytes"];
    std::printf("  %-26s %14" PRIu64 " bytes, %s\n", owner["owner"].get<std::string>().c_str(),
                owner["bytes"].get<uint64_t>(),
                used.is_null() ? "how much is used its process knows"
                               : (used.dump() + " used").c_str());
  }
  print_heap(json);
  for (const Json& shard : json["shards"]) {
    print_group("shard " + shard["name"].get<std::string>(), shard);
  }
  if (json.contains("groups")) {
    for (const Json& group : json["groups"]) {
      print_group("group " + group["name"].get<std::string>(), group);
    }
  }
  if (json.contains("verbs")) print_verbs(json["verbs"]);
  if (json.contains("services")) {
    for (const auto& [name, service] : json["services"].items()) print_service(name, service);
  }
}

}  // namespace

int stats_command(const Arguments& arguments) {
  auto snapshot = arguments.has("--from")
                      ? open_counters_file(arguments.value("--from"))
                      : open_counters(arguments.value("--directory", "/run/bedplate"),
                                      arguments.operands.empty() ? "" : arguments.operands[0]);
  if (!snapshot.ok()) return fail(snapshot.error());
  if (arguments.has("--watch")) return watch_stats(snapshot.value(), arguments.has("--json"));
  const Json json = stats_json(snapshot.value());
  if (arguments.has("--json")) {
    print_json(json);
  } else {
    print_text(json);
  }
  return kExitGood;
}

}  // namespace bedplate
