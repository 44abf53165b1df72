#include "apps/configuration/configuration_checks.h"

#include <map>
#include <string>

#include "apps/configuration/configuration_part.h"
#include "apps/configuration/configuration_words.h"

namespace bedplate {
namespace {

void check_eager_region(ReadTable& table, const GroupShape& shape) {
  if (table.was_refused("eager_bytes") || table.was_refused("eager_count")) return;
  const uint64_t least = eager_region_bytes_min(shape.kind);
  if (uint64_t{shape.eager_bytes} * shape.eager_count >= least) return;
  const TomlNode* bytes = find_child(table.node(), "eager_bytes");  // the default is larger
  table.refuse_at(bytes->key_position,
                  "\"eager_bytes\" is " + std::to_string(shape.eager_bytes) +
                      " and \"eager_count\" is " + std::to_string(shape.eager_count),
                  "expected " + std::to_string(least) +
                      " bytes or more as their product in the layout " +
                      quoted(to_text(shape.kind)) + ": a put or get needs that much");
}

}  // namespace

void check_group(ReadTable& table, GroupSettings& group) {
  GroupShape& shape = group.shape;
  if (table.was_refused("layout") || table.was_refused("members")) return;
  check_eager_region(table, shape);
  if (shape.kind == GroupKind::kMesh) {
    table.refuse_keys(
        {"boxes", "box_bytes", "box_max_count", "send_threshold", "publish_timeout_ms"},
        "has no meaning in a mesh, where each pair has a lane of its own",
        "leave it out, or set layout = \"lazy\"");
    return;
  }
  table.refuse_keys({"multi_threaded"}, "has no meaning in the layout \"lazy\"",
                    "leave it out, or set layout = \"mesh\"");
  if (!table.has("boxes")) shape.box_count = default_box_count(group.member_count);
}

void check_process(ReadTable& table, ProcessSettings& process) {
  if (table.was_refused("trusted")) return;
  if (process.trusted) {
    // By default, a heap is not planned a second time for a spare place: it would take too much
    // memory.
    if (!table.has("spare_count")) process.spare_count = process.heap_bytes == 0;
    table.refuse_keys({"box_bytes"}, "is for processes that are not trusted",
                      "leave it out: the boxes of a group are set in [[group]]");
    if (!table.has("group") && !table.was_refused("group")) {
      table.refuse("\"group\" is missing in [[process]]",
                   "expected group: the name of a group; or trusted = false");
    }
    return;
  }
  table.refuse_keys({"group"}, "is for trusted processes",
                    "leave it out, or set trusted = true: other processes share memory with the "
                    "owner only");
  table.refuse_keys({"spare_count"}, "is for trusted processes",
                    "leave it out: only the owner can hold the slot of such a process");
  if (!process.write.empty()) {
    table.refuse_keys({"write"}, "is for trusted processes",
                      "leave it out: other processes write only to their exchange segment and "
                      "their heap");
  }
  if (process.members > 1) {
    table.refuse_keys({"members"}, "is " + std::to_string(process.members),
                      "expected 1: a process that is not trusted is one member");
  }
}

namespace {

// Refuses processes with verbs = true if the file has no [verbs].
void check_processes_with_verbs(ReadTable& file) {
  const TomlNode* processes = find_child(file.node(), "process");
  if (file.has("verbs") || file.was_refused("verbs") || processes == nullptr) return;
  for (const TomlNode& process : processes->children) {
    const TomlNode* verbs = find_child(process, "verbs");
    if (verbs == nullptr || verbs->kind != TomlNode::Kind::kBoolean || verbs->number == 0) continue;
    file.refuse_at(verbs->position, "\"verbs\" is true, but there is no [verbs]",
                   "add the table [verbs], or leave verbs out");
  }
}

void check_pool(ReadTable& file, const PoolSettings& pool) {
  const uint64_t page = page_bytes(smallest_page(pool.pages));
  if (file.was_refused("pool.pages") || pool.bytes % page == 0) return;
  const uint64_t below = align_down(pool.bytes, page);
  file.refuse_at(find_child(*find_child(file.node(), "pool"), "bytes")->position,
                 "\"bytes\" is " + std::to_string(pool.bytes) +
                     ", not a multiple of the page size of " + format_bytes(page).text,
                 "expected " + (below == 0 ? "" : format_bytes(below).text + std::string(" or ")) +
                     format_bytes(below + page).text);
}

// Refuses shards that have the core of an earlier one, unless cores may be shared.
void check_cores(ReadTable& file, const Configuration& all) {
  if (all.event_loop.shared_cores) return;
  for (const char* key : {"event_loop", "event_loop.shared_cores", "shard", "shard.cpu"}) {
    if (file.was_refused(key)) return;
  }
  const TomlNode* shards = tables_of(file, "shard", all.shards.size());
  if (shards == nullptr) return;
  std::map<int, uint32_t> lines;  // of each core, where the first shard names it
  for (size_t i = 0; i < all.shards.size(); ++i) {
    const TomlPosition position = find_child(shards->children[i], "cpu")->position;
    const auto [first, is_new] = lines.emplace(all.shards[i].cpu, position.line);
    if (is_new) continue;
    file.refuse_at(position,
                   "\"cpu\" " + std::to_string(first->first) +
                       " is already used by the [[shard]] at line " + std::to_string(first->second),
                   "expected a different one: each [[shard]] has its own, unless shared_cores is "
                   "true in [event_loop]");
  }
}

// The spare places of each process are members of its group.
// Called for each value that is tried, so it adds to what is configured.
void add_spare_members(Configuration& all) {
  for (GroupSettings& group : all.groups) group.spare_count = 0;
  for (const ProcessSettings& process : all.processes) {
    if (!process.trusted || process.group >= all.groups.size()) continue;
    GroupSettings& group = all.groups[process.group];
    group.spare_count += process.spare_count * process.members;
  }
  for (GroupSettings& group : all.groups) {
    group.shape.member_count = group.member_count + group.spare_count;
  }
}

// The default of the socket's path depends on other keys.
void complete_messages(ReadTable& file, Configuration& all) {
  std::string& socket = all.messages.socket;
  if (!socket.empty()) return;
  socket = all.appliance.runtime_directory + "/" + all.appliance.name + ".join";
  if (all.processes.empty() || socket.size() <= kSocketPathMax) return;
  file.refuse_at(
      {}, quoted(socket) + " is too long for a socket: " + std::to_string(socket.size()) + " bytes",
      "set \"socket\" in [messages]: path: begins with /, 1.." + std::to_string(kSocketPathMax) +
          " bytes");
}

}  // namespace

void check_across_tables(ReadTable& file, Configuration& all) {
  check_pool(file, all.pool);
  check_cores(file, all);
  check_processes_with_verbs(file);
  check_parts(file, all);
  add_spare_members(all);
  complete_messages(file, all);
}

}  // namespace bedplate
