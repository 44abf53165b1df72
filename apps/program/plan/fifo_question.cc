// `bedplate plan --fifo`: prints the memory that a group of FIFOs would take, without a
// configuration.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <string>

#include "apps/program/commands.h"
#include "apps/program/plan/group_parts.h"
#include "pinned_pool/join/membership.h"
#include "platform/assert.h"
#include "platform/hugepage.h"
#include "platform/product.h"
#include "platform/units.h"

namespace bedplate {
namespace {

enum class Layouts { kBoth, kLazyOnly, kMeshOnly };

struct NumberOption {
  const char* name;
  uint32_t GroupShape::*field;
  bool is_size;
  Layouts layouts;
};

constexpr NumberOption kNumbers[] = {
    {"--peers", &GroupShape::member_count, false, Layouts::kBoth},
    {"--entries", &GroupShape::entry_count, false, Layouts::kBoth},
    {"--eager", &GroupShape::eager_bytes, true, Layouts::kBoth},
    {"--eager-count", &GroupShape::eager_count, false, Layouts::kBoth},
    {"--boxes", &GroupShape::box_count, false, Layouts::kLazyOnly},
    {"--box-bytes", &GroupShape::box_bytes, true, Layouts::kLazyOnly},
    {"--loans", &GroupShape::loan_count, false, Layouts::kBoth},
    {"--line-bytes", &GroupShape::line_bytes, true, Layouts::kBoth},
};
constexpr const char* kThreads = "--threads";

Error bad_option(const char* option, const std::string& text) {
  return configuration_error_while("reading %s %s", option, text.c_str());
}

Result<uint32_t> read_number(const NumberOption& option, const std::string& text) {
  const bool is_digits = text.find_first_not_of("0123456789") == std::string::npos;
  const std::optional<uint64_t> number = parse_bytes(text);
  if (!number || (!is_digits && !option.is_size)) {
    Error error = bad_option(option.name, text);
    error.set_answer("this is not a number");
    return error.set_cure(option.is_size ? "write a size: 4096 or 4KiB" : "write digits: 1024");
  }
  if (*number > std::numeric_limits<uint32_t>::max()) {
    return bad_option(option.name, text)
        .set_answer("it is too large")
        .set_cure("see: %s plan --help", product().name);
  }
  // Checks this number alone, so that the error is about it.
  GroupShape probe;
  probe.*option.field = static_cast<uint32_t>(*number);
  if (auto checked = check_group_shape(probe); !checked.ok()) {
    Error error = bad_option(option.name, text);
    error.set_answer("%s", checked.error().answer);
    return error.set_cure("%s", checked.error().cure);
  }
  return static_cast<uint32_t>(*number);
}

Result<GroupShape> default_shape(const std::string& layout) {
  GroupShape shape;
  if (layout == "lazy") return shape;
  if (layout != "mesh") {
    return bad_option("--fifo", layout)
        .set_answer("there is no such layout")
        .set_cure("write --fifo lazy or --fifo mesh");
  }
  // Uses the smallest values, as for a mesh of many members; [[group]] describes both.
  shape.kind = GroupKind::kMesh;
  shape.eager_count = 1;
  shape.loan_count = 64;
  return shape;
}

Result<void> check_meaning(const char* option, Layouts layouts, GroupKind kind) {
  const bool is_mesh = kind == GroupKind::kMesh;
  if (layouts == Layouts::kBoth || (layouts == Layouts::kMeshOnly) == is_mesh) return {};
  return configuration_error_while("reading %s", option)
      .set_answer("it has no meaning in the layout %s", to_text(kind))
      .set_cure("leave it out, or write --fifo %s", is_mesh ? "lazy" : "mesh");
}

Result<GroupShape> read_shape(const Arguments& arguments) {
  BP_TRY_ASSIGN(GroupShape asked, default_shape(arguments.value("--fifo")));
  if (!arguments.has("--peers")) {
    return configuration_error_while("reading the command line")
        .set_answer("missing --peers")
        .set_cure("set the number of members: --peers 1024");
  }
  for (const NumberOption& option : kNumbers) {
    if (!arguments.has(option.name)) continue;
    BP_TRY(check_meaning(option.name, option.layouts, asked.kind));
    BP_TRY_ASSIGN(asked.*option.field, read_number(option, arguments.value(option.name)));
  }
  if (arguments.has(kThreads)) {
    BP_TRY(check_meaning(kThreads, Layouts::kMeshOnly, asked.kind));
    asked.is_multi_threaded = 1;
  }
  if (asked.kind == GroupKind::kLazy && !arguments.has("--boxes")) {
    asked.box_count = default_box_count(asked.member_count);
  }
  BP_TRY(check_group_shape(asked));  // each number is good: checks their combination
  return asked;
}

struct Answer {
  GroupShape shape;
  std::vector<PartRow> rows;  // of the group, then the members table
  uint64_t group_bytes = 0;
  uint64_t table_bytes = 0;

  uint64_t total_bytes() const noexcept { return group_bytes + table_bytes; }
  uint64_t bytes_per_member() const noexcept {
    BP_ASSERT(shape.member_count > 0);
    return (total_bytes() + shape.member_count - 1) / shape.member_count;
  }
  // Two segments; the segment of the members tables always has 4 KiB pages.
  uint64_t bytes_in(PageSize page) const noexcept {
    return align_up(group_bytes, page_bytes(page)) +
           align_up(table_bytes, page_bytes(PageSize::k4KiB));
  }
};

Answer answer_for(const GroupShape& shape) {
  const GroupLayout layout(shape);
  Answer answer = {shape, part_rows(layout), layout.bytes(),
                   MembersTable::bytes_for(shape.member_count)};
  answer.rows.push_back({"members table", 1, answer.table_bytes});
  uint64_t bytes = 0;
  for (const PartRow& row : answer.rows) bytes += row.bytes();
  BP_ASSERT(bytes == answer.total_bytes());  // the parts add up to the total, to the byte
  return answer;
}

constexpr PageSize kPages[] = {PageSize::k4KiB, PageSize::k2MiB};

JsonValue to_json(const Answer& answer) {
  JsonValue json = shape_json(answer.shape);
  json["parts"] = parts_json(answer.rows);
  json["total_bytes"] = answer.total_bytes();
  json["bytes_per_member"] = answer.bytes_per_member();
  json["in_pages"] = JsonValue::array();
  for (const PageSize page : kPages) {
    json["in_pages"].push_back(
        {{"page_bytes", page_bytes(page)}, {"bytes", answer.bytes_in(page)}});
  }
  return json;
}

void print_sum(const std::string& what, uint64_t bytes) {
  std::printf("%-16s %12s %10s %14" PRIu64 " %12.3f\n", what.c_str(), "", "", bytes,
              static_cast<double>(bytes) / 1e6);
}

void print_table(const Answer& answer) {
  const JsonValue shape = shape_json(answer.shape);
  std::string heading;
  for (const auto& [key, value] : shape.members()) {
    heading += (heading.empty() ? "" : ", ") + key + " " + value.text();
  }
  std::printf("%s\n\n%-16s %12s %10s %14s %12s\n", heading.c_str(), "part", "bytes each", "count",
              "bytes", "10^6 bytes");
  for (const PartRow& row : answer.rows) {
    std::printf("%-16s %12" PRIu64 " %10" PRIu64 " %14" PRIu64 " %12.3f\n", row.name,
                row.bytes_each, row.count, row.bytes(), static_cast<double>(row.bytes()) / 1e6);
  }
  print_sum("total", answer.total_bytes());
  print_sum("for each member", answer.bytes_per_member());
  for (const PageSize page : kPages) {
    print_sum(std::string("pages of ") + format_bytes(page_bytes(page)).text,
              answer.bytes_in(page));
  }
}

}  // namespace

int answer_fifo_question(const Arguments& arguments) {
  auto shape = read_shape(arguments);
  if (!shape.ok()) return fail(shape.error());
  const Answer answer = answer_for(shape.value());
  arguments.has("--json") ? print_json(to_json(answer)) : print_table(answer);
  return kExitGood;
}

}  // namespace bedplate
