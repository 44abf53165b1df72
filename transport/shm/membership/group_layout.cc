#include "transport/shm/membership/group_layout.h"

#include "transport/messages/fast_box_datapath.h"
#include "transport/messages/message_slot.h"
#include "transport/shm/endpoint/shm_operations.h"
#include "transport/shm/membership/group_segment.h"
#include "transport/shm/membership/group_traits.h"
#include "transport/shm/queue/eager_region_datapath.h"
#include "transport/shm/queue/inbound_fifo_datapath.h"
#include "transport/shm/queue/mesh_lane_datapath.h"

namespace bedplate {
namespace {

static_assert(kMemberCountMax == kSlotSenderMax && kMessageBytesMax == kSlotBytesMax);

constexpr uint64_t bitmap_bytes(uint64_t bit_count) noexcept { return align_up(bit_count, 64) / 8; }

}  // namespace

const char* to_text(GroupPart part) noexcept {
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
  if (group_traits(shape_.kind).has_eager_region) {
    eager_region_bytes_ = align_up(uint64_t{shape_.eager_bytes} * shape_.eager_count, line);
  }
  eager_ = take(GroupPart::kEager, eager_region_bytes_);
  member_bytes_ = end;
}

}  // namespace bedplate
