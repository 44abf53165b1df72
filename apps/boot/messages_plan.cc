#include "apps/boot/messages_plan.h"

#include <algorithm>
#include <cinttypes>
#include <string>

#include "pinned_pool/join/membership.h"
#include "platform/text.h"

namespace bedplate {
namespace {

constexpr uint64_t kOwnMembers = 1;  // the pool's owner is a member of each group

Result<void> check_places(const Configuration& configuration, uint32_t group_index) {
  const GroupSettings& group = configuration.groups[group_index];
  uint64_t members = kOwnMembers;
  for (const ProcessSettings& process : configuration.processes) {
    if (!process.trusted || process.group != group_index) continue;
    members += uint64_t{process.max_count} * process.members;
  }
  const uint32_t planned = group.shape.member_count - group.spare_count;
  Error error = configuration_error_while("planning the group %s", group.name.c_str());
  if (group.shape.member_count > kMemberCountMax) {
    return error
        .set_answer("it has %u members and %u spare slots for its processes, but a group has at "
                    "most %u in all",
                    planned, group.spare_count, kMemberCountMax)
        .set_cure("lower members in [[group]], or spare_count in [[process]]");
  }
  if (members <= planned) return {};
  error.set_answer("its processes and the owner need %" PRIu64 " members, but it has slots for %u",
                   members, planned);
  return error.set_cure("set members in [[group]] to %" PRIu64
                        " or more, or lower max_count or members in [[process]]",
                        members);
}

// True if only its owner may write the segment: malloc or the owner keeps records in it, it belongs
// to a group, or it belongs to one process.
bool is_owners_alone(const SegmentRequest& request) noexcept {
  const std::string_view owner = request.owner.view();
  for (const std::string_view prefix : {"heap:", "fifo:", "exchange:"}) {
    if (owner.starts_with(prefix)) return true;
  }
  return owner == "heap" || owner == "members" || owner == "verbs";
}

Error no_such_segment(const ProcessSettings& process, const char* key, const std::string& text,
                      bool is_there, const std::string& names) {
  Error error = configuration_error_while("granting %s to the process %s", text.c_str(),
                                          process.name.c_str());
  if (is_there) return error.set_answer("only its owner may write it").set_cure("name it in read");
  error.set_answer("this configuration has no such segment");
  return error.set_cure("%s in [[process]] may name: %s", key,
                        names.empty() ? "none" : names.c_str());
}

Result<void> check_list(const ProcessSettings& process, const char* key,
                        const std::vector<std::string>& list, bool for_writing,
                        const std::vector<SegmentRequest>& segments) {
  for (const std::string& text : list) {
    std::string names;
    bool is_there = false;
    bool is_granted = false;
    for (const SegmentRequest& segment : segments) {
      const bool is_allowed = !for_writing || !is_owners_alone(segment);
      const bool is_named = names_segment(text, segment.owner);
      is_there = is_there || is_named;
      is_granted = is_granted || (is_named && is_allowed);
      if (is_allowed) add_word(&names, segment.owner.view());
    }
    if (!is_granted) return no_such_segment(process, key, text, is_there, names);
  }
  return {};
}

}  // namespace

OwnerName instance_owner(std::string_view kind, const ProcessSettings& process, uint32_t number) {
  return OwnerName(kind, process.name + "." + std::to_string(number));
}

bool names_segment(std::string_view text, const OwnerName& segment) noexcept {
  const std::string_view owner = segment.view();
  if (text == owner) return true;
  // The names of processes have no dot; names of volumes may have one.
  const bool is_instance = owner.starts_with("heap:") || owner.starts_with("exchange:");
  return is_instance && text == owner.substr(0, owner.rfind('.'));
}

GroupShape exchange_shape(const ProcessSettings& process) noexcept {
  GroupShape shape;
  shape.kind = GroupKind::kExchange;
  shape.member_count = 2;
  shape.box_bytes = process.box_bytes;
  return shape;
}

Result<MessagesPlan> plan_messages(const Configuration& configuration) {
  MessagesPlan plan;
  if (configuration.groups.empty() && configuration.processes.empty()) return plan;
  const int node = node_of_cpu(configuration.shards[0].cpu);
  const Placement pool_pages = {configuration.pool.pages, node};
  plan.requests.push_back({"members", {}, {PageWish::k4KiB, node}});
  const auto add_group = [&](const OwnerName& segment, const OwnerName& table,
                             const GroupShape& shape) {
    plan.requests[0].carves.push_back({table, MembersTable::bytes_for(shape.member_count)});
    plan.requests.push_back({segment, {{segment, GroupLayout(shape).bytes()}}, pool_pages});
    plan.groups.push_back({segment, shape});
  };
  for (uint32_t i = 0; i < configuration.groups.size(); ++i) {
    BP_TRY(check_places(configuration, i));
    const GroupSettings& group = configuration.groups[i];
    add_group({"fifo", group.name}, {"members", group.name}, group.shape);
  }
  for (const ProcessSettings& process : configuration.processes) {
    for (uint32_t k = 0; k < process.place_count(); ++k) {
      if (process.heap_bytes != 0) {
        const OwnerName heap = instance_owner("heap", process, k);
        plan.requests.push_back({heap, {{heap, process.heap_bytes}}, pool_pages});
      }
      if (process.trusted) continue;
      add_group(instance_owner("exchange", process, k), instance_owner("members", process, k),
                exchange_shape(process));
    }
  }
  return plan;
}

Result<void> check_grants(const Configuration& configuration,
                          const std::vector<SegmentRequest>& segments) {
  for (const ProcessSettings& process : configuration.processes) {
    BP_TRY(check_list(process, "read", process.read, false, segments));
    BP_TRY(check_list(process, "write", process.write, true, segments));
  }
  return {};
}

}  // namespace bedplate
