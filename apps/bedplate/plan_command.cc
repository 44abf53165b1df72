#include <cinttypes>
#include <cstdio>


#include "apps/bedplate/commands.h"
#include "apps/bedplate/json_output.h"
#include "apps/boot/appliance_plan.h"
#include "platform/units.h"

namespace bedplate {
namespace {

Json to_json(const AppliancePlan& plan) {
  Json json;
  json["total_bytes"] = plan.pool.total_bytes();
  json["segments"] = Json::array();
  for (const SegmentPlan& segment : plan.pool.segments) {
    Json carves = Json::array();
    for (const CarvePlan& carve : segment.carves) {
      carves.push_back({{"owner", carve.owner.text}, {"bytes", carve.bytes}});
    }
    json["segments"].push_back({{"owner", segment.owner.text},
                                {"bytes", segment.bytes},
                                {"page_bytes", page_bytes(segment.page)},
                                {"node", node_json(segment.node)},
                                {"carves", carves}});
  }
  json["stacks"] = {{"count", plan.stacks.count},
                    {"bytes_each", plan.stacks.bytes_each},
                    {"bytes", plan.stacks.total_bytes()}};
  return json;
}

void print_row(const char* owner, uint64_t bytes, const char* page, const char* node) {
  std::printf("%-32s %16" PRIu64 "  %-6s %-5s %s\n", owner, bytes, page, node,
              format_bytes(bytes).text);
}

void print_table(const AppliancePlan& plan) {
  std::printf("%-32s %16s  %-6s %s\n", "owner", "bytes", "page", "node");
  for (const SegmentPlan& segment : plan.pool.segments) {
    print_row(segment.owner.text, segment.bytes, format_bytes(page_bytes(segment.page)).text,
              segment.node == kAnyNode ? "any" : std::to_string(segment.node).c_str());
    if (segment.carves.size() < 2) continue;  // one carve is the segment, but for its last page
    for (const CarvePlan& carve : segment.carves) {
      print_row((std::string("  ") + carve.owner.text).c_str(), carve.bytes, "", "");
    }
  }
  print_row("total", plan.pool.total_bytes(), "", "");
  std::printf("beside the pool: %" PRIu64 " thread stack%s of %s, private and locked\n",
              plan.stacks.count, plan.stacks.count == 1 ? "" : "s",
              format_bytes(plan.stacks.bytes_each).text);
}

}  // namespace

int plan_command(const Arguments& arguments) {
  auto configuration = load_configuration(arguments.operands[0].c_str());
  if (!configuration.ok()) return fail(configuration.error());
  auto plan = plan_appliance(configuration.value());
  if (!plan.ok()) return fail(plan.error());
  arguments.json ? print_json(to_json(plan.value())) : print_table(plan.value());
  return kExitGood;
}

}  // namespace bedplate
