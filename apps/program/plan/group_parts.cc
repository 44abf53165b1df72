#include "apps/program/plan/group_parts.h"

#include "platform/assert.h"

namespace bedplate {
namespace {

uint64_t count_of(GroupPart part, const GroupShape& shape) noexcept {
  switch (part) {
    case GroupPart::kHeader:
    case GroupPart::kBoxOwners: return 1;
    case GroupPart::kBoxes: return shape.box_count;
    default: return shape.member_count;
  }
}

}  // namespace

std::vector<PartRow> part_rows(const GroupLayout& layout) {
  std::vector<PartRow> rows;
  for (uint32_t i = 0; i < static_cast<uint32_t>(GroupPart::kCount); ++i) {
    const auto part = static_cast<GroupPart>(i);
    const uint64_t bytes = layout.part_bytes(part);
    if (bytes == 0) continue;
    const uint64_t count = count_of(part, layout.shape());
    BP_ASSERT(count > 0);  // a part without elements has no bytes
    BP_ASSERT(bytes % count == 0);
    rows.push_back({to_text(part), count, bytes / count});
  }
  return rows;
}

JsonValue parts_json(const std::vector<PartRow>& rows) {
  JsonValue parts = JsonValue::array();
  for (const PartRow& row : rows) {
    parts.push_back({{"part", row.name},
                     {"count", row.count},
                     {"bytes_each", row.bytes_each},
                     {"bytes", row.bytes()}});
  }
  return parts;
}

JsonValue shape_json(const GroupShape& shape) {
  JsonValue json;
  json["layout"] = to_text(shape.kind);
  json["members"] = shape.member_count;
  if (shape.kind != GroupKind::kExchange) {
    json["entries"] = shape.entry_count;
    json["eager_bytes"] = shape.eager_bytes;
    json["eager_count"] = shape.eager_count;
  }
  if (shape.kind == GroupKind::kLazy) {
    json["boxes"] = shape.box_count;
    json["box_max_count"] = shape.box_count_max;
    json["send_threshold"] = shape.send_threshold;
    json["publish_timeout_ms"] = shape.publish_timeout_ms;
  }
  if (shape.kind != GroupKind::kMesh) json["box_bytes"] = shape.box_bytes;
  json["loans"] = shape.loan_count;
  if (shape.kind == GroupKind::kMesh) json["multi_threaded"] = shape.is_multi_threaded != 0;
  json["line_bytes"] = shape.line_bytes;
  return json;
}

}  // namespace bedplate
