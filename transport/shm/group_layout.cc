#include "transport/shm/group_layout.h"

#include <cinttypes>

#include "transport/shm/eager_region_datapath.h"
#include "transport/shm/fast_box_datapath.h"
#include "transport/shm/group_segment.h"
#include "transport/shm/inbound_fifo_datapath.h"
#include "transport/shm/mesh_lane_datapath.h"
#include "transport/shm/shm_operations.h"

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
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("laying out a group of FIFOs");
  error.set_answer("%s is %" PRIu64, range.name, range.value);
  return error.set_cure("%s may be %" PRIu64 "..%" PRIu64 "%s", range.name, range.min, range.max,
                        range.is_power_of_two ? ", a power of two" : "");
}

constexpr uint64_t bitmap_bytes(uint64_t bit_count) noexcept { return align_up(bit_count, 64) / 8; }

}  // namespace

const char* group_kind_text(GroupKind kind) noexcept {
  switch (kind) {
    case GroupKind::kLazy: return "lazy";
    case GroupKind::kMesh: return "mesh";
    case GroupKind::kExchange: return "exchange";
  }
  return "";
}

const char* group_part_text(GroupPart part) noexcept {
  switch (part) {
    case GroupPart::kHeader: return "header";
    case GroupPart::kBoxOwners: return "box owners";
    case GroupPart::kBoxes: return "boxes";
    case GroupPart::kWrappers: return "wrappers";
    case GroupPart::kReturnedLoans: return "returned loans";
    case GroupPart::kHeldLoans: return "held loans, cut-offs";
    case GroupPart::kClaims: return "claims and tails";
    case GroupPart::kQueues: return "queues";
    case GroupPart::kHeadsAndTails: return "heads and tails";
    case GroupPart::kEager: return "eager regions";
    case GroupPart::kCount: break;
  }
  return "";
}

// An operation that the target does: its record, a line of its data, and in a mesh what its word
// points to. An exchange has no eager region.
uint64_t eager_region_bytes_min(GroupKind kind) noexcept {
  constexpr uint64_t record_bytes = sizeof(OperationRecord) + kOperationBytesMin;
  switch (kind) {
    case GroupKind::kLazy: return record_bytes;
    case GroupKind::kMesh: return record_bytes + kCacheLineBytes;
    case GroupKind::kExchange: break;
  }
  return 0;
}

Result<void> check_group_shape(const GroupShape& shape) noexcept {
  const bool is_exchange = shape.kind == GroupKind::kExchange;
  const Range ranges[] = {
      {"kind", static_cast<uint64_t>(shape.kind), 0, 2, false},
      {"members", shape.member_count, is_exchange ? 2u : 1u, is_exchange ? 2u : kMemberCountMax,
       false},
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
    Error error;
    error.kind = ErrorKind::kConfiguration;
    error.set_doing("laying out a group of FIFOs");
    error.set_answer("eager_bytes is %u and eager_count is %u", shape.eager_bytes,
                     shape.eager_count);
    return error.set_cure("eager_bytes times eager_count must be %" PRIu64
                          " at least in the layout %s",
                          least, group_kind_text(shape.kind));
  }
  return {};
}

GroupLayout::GroupLayout(const GroupShape& shape) noexcept : shape_(shape) {
  lay_out_member();
  lay_out_group();
}

void GroupLayout::lay_out_group() noexcept {
  const uint64_t line = shape_.line_bytes;
  uint64_t end = align_up(sizeof(GroupHeader), line);
  add(GroupPart::kHeader, 1, end);
  if (shape_.kind == GroupKind::kLazy) {
    box_owners_ = end;
    const uint64_t owners = align_up(shape_.box_count * sizeof(uint64_t), line);
    add(GroupPart::kBoxOwners, 1, owners);
    boxes_ = box_owners_ + owners;
    add(GroupPart::kBoxes, shape_.box_count, shape_.box_bytes);
    end = box(shape_.box_count);
  }
  members_ = end;
  bytes_ = member(shape_.member_count);
}

void GroupLayout::lay_out_member() noexcept {
  const uint64_t line = shape_.line_bytes;
  const uint64_t count = shape_.member_count;
  uint64_t end = 0;
  const auto take = [&](GroupPart part, uint64_t bytes) {
    const uint64_t begin = end;
    end += align_up(bytes, line);
    add(part, count, end - begin);
    return begin;
  };
  take(GroupPart::kWrappers, sizeof(MemberWrapper));
  take(GroupPart::kWrappers, sizeof(SingleCopyCard));
  returned_ = take(GroupPart::kReturnedLoans, shape_.loan_count);
  held_ = take(GroupPart::kHeldLoans, 2 * bitmap_bytes(count));
  cut_offs_ = held_ + bitmap_bytes(count);
  if (shape_.kind == GroupKind::kLazy) {
    fifo_ = take(GroupPart::kClaims, 2 * line);
    take(GroupPart::kQueues, InboundFifo::slot_bytes(shape_.entry_count));
  } else if (shape_.kind == GroupKind::kMesh) {
    queue_bytes_ = MeshLane::queue_bytes(shape_.entry_count);
    queues_ = take(GroupPart::kQueues, (count - 1) * queue_bytes_);
    head_and_tail_bytes_ = 2 * (shape_.is_multi_threaded ? line : sizeof(uint32_t));
    heads_ = take(GroupPart::kHeadsAndTails, (count - 1) * head_and_tail_bytes_);
  } else {
    fifo_ = take(GroupPart::kQueues, shape_.box_bytes);
  }
  if (shape_.kind != GroupKind::kExchange) eager_ = take(GroupPart::kEager, eager_region_bytes());
  member_bytes_ = end;
}

}  // namespace bedplate
