#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/loaded_configuration.h"
#include "apps/program/commands.h"
#include "apps/program/init_part.h"
#include "apps/program/plan/group_parts.h"
#include "apps/program/plan/part_homes.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// The group in the segment `owner`; nullptr: none.
const GroupPlan* find_group(const AppliancePlan& plan, const OwnerName& owner) {
  const auto found = std::find_if(plan.groups.begin(), plan.groups.end(),
                                  [&](const GroupPlan& group) { return group.segment == owner; });
  return found == plan.groups.end() ? nullptr : &*found;
}

// The plan as JSON. A program with libbedplate-init.a adds the image's modules, and the files that
// services read.
JsonValue to_json(const AppliancePlan& plan, const Configuration& configuration) {
  JsonValue json;
  json["total_bytes"] = plan.pool.total_bytes();
  if (const InitPart* init = init_part()) {
    JsonValue& modules = json["modules"] = JsonValue::array();
    for (const std::string& name : init->needed_modules(configuration, plan))
      modules.push_back(name);
    JsonValue& files = json["files"] = JsonValue::array();
    for (const ServiceNeeds& service : plan.services) {
      for (const std::string& path : service.image_files) files.push_back(path);
    }
  }
  JsonValue segments = JsonValue::array();
  for (const SegmentPlan& segment : plan.pool.segments) {
    JsonValue carves = JsonValue::array();
    for (const CarvePlan& carve : segment.carves) {
      carves.push_back({{"owner", carve.owner.text}, {"bytes", carve.bytes}});
    }
    JsonValue& added = segments.push_back({{"owner", segment.owner.text},
                                           {"bytes", segment.bytes},
                                           {"page_bytes", page_bytes(segment.page)},
                                           {"node", node_json(segment.node)},
                                           {"carves", carves}});
    if (const GroupPlan* group = find_group(plan, segment.owner)) {
      JsonValue described = shape_json(group->shape);
      described["parts"] = parts_json(part_rows(GroupLayout(group->shape)));
      added["group"] = described;
    }
  }
  json["segments"] = std::move(segments);
  json["stacks"] = {{"count", plan.stacks.count},
                    {"bytes_each", plan.stacks.bytes_each},
                    {"bytes", plan.stacks.total_bytes()}};
  if (const auto homes = homes_of(plan); !homes.empty()) json["homes"] = homes_json(homes);
  if (plan.verbs.empty()) return json;
  json["verbs"] = JsonValue::array();
  for (const VerbsContextPlan& context : plan.verbs) {
    json["verbs"].push_back({{"process", context.process},
                             {"contexts", context.count},
                             {"regions_each", context.region_count},
                             {"locked_bytes_each", context.locked_bytes},
                             {"locked_bytes", context.total_bytes()}});
  }
  return json;
}

int owner_width(const AppliancePlan& plan) {
  size_t width = 32;
  for (const SegmentPlan& segment : plan.pool.segments) {
    width = std::max(width, segment.owner.view().size());
    for (const CarvePlan& carve : segment.carves) {
      width = std::max(width, carve.owner.view().size() + 2);
    }
  }
  return static_cast<int>(width);
}

struct Rows {
  int width;
  void print(const std::string& owner, uint64_t bytes, const char* page = "",
             const char* node = "") const {
    std::printf("%-*s %16" PRIu64 "  %-6s %-5s %s\n", width, owner.c_str(), bytes, page, node,
                format_bytes(bytes).text);
  }
  void print_parts(const GroupShape& shape) const {
    for (const PartRow& row : part_rows(GroupLayout(shape))) {
      print(std::string("  ") + row.name, row.bytes());
    }
  }
};

// Registered memory is locked once for each context, and once more if it is opened to peers.
void print_contexts(const std::vector<VerbsContextPlan>& contexts) {
  uint64_t bytes = 0;
  for (const VerbsContextPlan& context : contexts) {
    std::printf("verbs, %s: %" PRIu64 " context%s x %" PRIu64 " regions x %s locked",
                context.process.c_str(), context.count, context.count == 1 ? "" : "s",
                context.region_count, format_bytes(context.locked_bytes).text);
    std::printf(context.count == 1 ? "\n" : ": %s\n", format_bytes(context.total_bytes()).text);
    bytes += context.total_bytes();
  }
  if (contexts.size() > 1) std::printf("verbs, all: %s locked\n", format_bytes(bytes).text);
}

void print_table(const AppliancePlan& plan) {
  const Rows rows = {owner_width(plan)};
  std::printf("%-*s %16s  %-6s %s\n", rows.width, "owner", "bytes", "page", "node");
  const GroupPlan* above = nullptr;
  for (const SegmentPlan& segment : plan.pool.segments) {
    rows.print(segment.owner.text, segment.bytes, format_bytes(page_bytes(segment.page)).text,
               segment.node == kAnyNode ? "any" : std::to_string(segment.node).c_str());
    const GroupPlan* group = find_group(plan, segment.owner);
    // Exchange groups of one kind of process are alike, so only the first is printed.
    const bool is_shown = group != nullptr && above != nullptr &&
                          group->shape.kind == GroupKind::kExchange && group->shape == above->shape;
    if (group != nullptr && !is_shown) rows.print_parts(group->shape);
    if (group != nullptr) above = group;
    if (segment.carves.size() < 2) continue;  // one carve is the segment, except its last page
    for (const CarvePlan& carve : segment.carves) {
      rows.print(std::string("  ") + carve.owner.text, carve.bytes);
    }
  }
  rows.print("total", plan.pool.total_bytes());
  std::printf("beside the pool: %" PRIu64 " thread stack%s of %s, private and locked\n",
              plan.stacks.count, plan.stacks.count == 1 ? "" : "s",
              format_bytes(plan.stacks.bytes_each).text);
  print_contexts(plan.verbs);
  print_homes(homes_of(plan));
}

}  // namespace

std::string plan_text(const AppliancePlan& plan, const Configuration& configuration) {
  return to_json(plan, configuration).dump(-1);
}

int plan_command(const Arguments& arguments) {
  if (arguments.has("--fifo")) {
    if (arguments.operands.empty()) return answer_fifo_question(arguments);
    return usage_failure("--fifo takes no configuration:", arguments.operands[0], "plan");
  }
  const bool is_explained = arguments.has("--explain");
  for (const Arguments::Option& option : arguments.options) {
    if (option.name == "--json" || option.name == "--explain") continue;
    if (option.name == "--from" && is_explained) continue;
    if (option.name == "--from") return usage_failure("--from needs --explain", "", "plan");
    return usage_failure(option.name + " needs --fifo", "", "plan");
  }
  if (arguments.operands.empty()) return usage_failure("missing CONFIG or --fifo", "", "plan");
  if (is_explained) return explain_plan(arguments);
  std::vector<Error> problems;
  const auto configuration =
      load_configuration(arguments.operands[0].c_str(), arguments.services, &problems);
  if (!configuration) return fail(problems);
  auto plan = plan_appliance(*configuration);
  if (!plan.ok()) return fail(plan.error());
  if (arguments.has("--json")) {
    print_json(to_json(plan.value(), *configuration));
  } else {
    print_table(plan.value());
  }
  return kExitGood;
}

}  // namespace bedplate
