#include "transport/shm/membership/group_shape.h"

#include <cinttypes>

#include "platform/units.h"
#include "transport/messages/fast_box_datapath.h"
#include "transport/shm/endpoint/shm_operations.h"
#include "transport/shm/membership/group_traits.h"

namespace bedplate {
namespace {

struct Range {
  const char* name;
  uint64_t value;
  uint64_t min;
  uint64_t max;
  bool is_power_of_two;
};

Error out_of_range(const Range& range) noexcept {
  return configuration_error_while("laying out a group of FIFOs")
      .set_answer("%s is %" PRIu64, range.name, range.value)
      .set_cure("%s may be %" PRIu64 "..%" PRIu64 "%s", range.name, range.min, range.max,
                range.is_power_of_two ? ", a power of two" : "");
}

}  // namespace

const char* to_text(GroupKind kind) noexcept {
  switch (kind) {
    case GroupKind::kLazy: return "lazy";
    case GroupKind::kMesh: return "mesh";
    case GroupKind::kExchange: return "exchange";
  }
  return "";
}

// Space for an operation that the target does: its record, a line of its data, and the bytes of the
// slot that announces it.
uint64_t eager_region_bytes_min(GroupKind kind) noexcept {
  const GroupTraits traits = group_traits(kind);
  if (!traits.has_eager_region) return 0;
  return sizeof(OperationRecord) + kOperationBytesMin + traits.slot_eager_bytes;
}

Result<void> check_group_shape(const GroupShape& shape) noexcept {
  const GroupTraits traits = group_traits(shape.kind);
  const Range ranges[] = {
      {"kind", static_cast<uint64_t>(shape.kind), 0, 2, false},
      {"members", shape.member_count, traits.member_count_min, traits.member_count_max, false},
      {"entries", shape.entry_count, 2, 32768, true},
      {"eager_bytes", shape.eager_bytes, 64, kMessageBytesMax, false},
      {"eager_count", shape.eager_count, 1, kEagerCountMax, false},
      {"box_bytes", shape.box_bytes, kFastBoxBytesMin, kFastBoxBytesMax, true},
      {"boxes", shape.box_count, 0, 1 << 20, false},
      {"box_max_count", shape.box_count_max, 0, kInboundBoxCountMax, false},
      {"send_threshold", shape.send_threshold, 1, 65535, false},
      {"loans", shape.loan_count, 1, 65535, false},
      {"line_bytes", shape.line_bytes, 64, 128, true},
      {"publish_timeout_ms", shape.publish_timeout_ms, 1, 60'000, false},
  };
  for (const Range& range : ranges) {
    if (range.value < range.min || range.value > range.max ||
        (range.is_power_of_two && !is_power_of_two(range.value))) {
      return out_of_range(range);
    }
  }
  const uint64_t least = eager_region_bytes_min(shape.kind);
  if (uint64_t{shape.eager_bytes} * shape.eager_count < least) {
    return configuration_error_while("laying out a group of FIFOs")
        .set_answer("eager_bytes is %u and eager_count is %u", shape.eager_bytes, shape.eager_count)
        .set_cure("eager_bytes times eager_count must be at least %" PRIu64 " in the layout %s",
                  least, to_text(shape.kind));
  }
  return {};
}

}  // namespace bedplate
