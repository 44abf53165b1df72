#include "transport/shm/membership/group_segment.h"

#include <cinttypes>
#include <cstring>
#include <new>

#include "platform/read_once.h"

namespace bedplate {
namespace {

Error foreign_segment(const char* answer) noexcept {
  return error_while("attaching to a group's segment")
      .set_answer("%s", answer)
      .set_cure("join with a program of the same version as the owner's");
}

Error foreign_segment(const char* what, uint64_t wanted, uint64_t found) noexcept {
  return foreign_segment("").set_answer("its %s is %" PRIu64 ", not %" PRIu64, what, found, wanted);
}

}  // namespace

GroupSegment GroupSegment::create(std::span<std::byte> memory, const GroupShape& shape,
                                  const PoolId& pool_id, BellFence fence) noexcept {
  GroupSegment segment(memory.data(), shape, fence);
  BP_ASSERT(memory.size() == segment.layout_.bytes());
  BP_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % shape.line_bytes == 0);
  auto* header = new (memory.data()) GroupHeader;
  header->version = GroupHeader::kVersion;
  header->fence = fence;
  header->pool_id = pool_id;
  header->shape = shape;
  header->magic.store(GroupHeader::kMagic, std::memory_order_release);
  return segment;
}

Result<GroupSegment> GroupSegment::attach(std::span<std::byte> memory, const GroupShape& shape,
                                          const PoolId& pool_id) noexcept {
  BP_TRY(check_group_shape(shape));
  if (memory.size() < sizeof(GroupHeader)) {
    return foreign_segment("size", sizeof(GroupHeader), memory.size());
  }
  const auto* header = reinterpret_cast<const GroupHeader*>(memory.data());
  const uint64_t magic = header->magic.load(std::memory_order_acquire);
  if (magic != GroupHeader::kMagic) return foreign_segment("magic", GroupHeader::kMagic, magic);
  const auto version = read_once<uint32_t>(&header->version);
  if (version != GroupHeader::kVersion) {
    return foreign_segment("version", GroupHeader::kVersion, version);
  }
  const auto found_id = read_once<PoolId>(&header->pool_id);
  if (!(found_id == pool_id)) return foreign_segment("it belongs to another pool");
  const auto fence = read_once<BellFence>(&header->fence);
  if (fence != BellFence::kSleeper && fence != BellFence::kBoth) {
    return foreign_segment("its kind of fence is unknown here");
  }
  const auto found = read_once<GroupShape>(&header->shape);
  if (!(found == shape)) return foreign_segment("its shape is not the one that the owner sent");
  GroupSegment segment(memory.data(), shape, fence);
  if (memory.size() < segment.layout_.bytes()) {
    return foreign_segment("size", segment.layout_.bytes(), memory.size());
  }
  return segment;
}

void GroupSegment::reset_member(uint32_t member) const noexcept {
  std::memset(base_ + layout_.member(member), 0, layout_.member_bytes());
  for (uint32_t other = 0; other < shape().member_count; ++other) {
    cut_offs(other)[member / 64].fetch_and(~(uint64_t{1} << (member % 64)),
                                           std::memory_order_relaxed);
  }
  if (shape().kind == GroupKind::kLazy) {
    for (uint32_t i = 0; i < shape().box_count; ++i) {
      const uint64_t owner = box_owner(i).load(std::memory_order_relaxed);
      if (owner >> 32 != member + 1 && (owner & UINT32_MAX) != member + 1) continue;
      box(i).clear();
      box_owner(i).store(0, std::memory_order_release);
    }
  } else if (shape().kind == GroupKind::kMesh) {
    // The parts of its lanes that lie with the other members.
    for (uint32_t other = 0; other < shape().member_count; ++other) {
      if (other == member) continue;
      std::memset(base_ + layout_.lane_queue(other, member), 0,
                  MeshLane::queue_bytes(shape().entry_count));
      std::memset(base_ + layout_.lane_tail(other, member), 0, sizeof(uint32_t));
      std::memset(base_ + layout_.lane_head(member, other), 0, sizeof(uint32_t));
    }
  } else {
    inbound_box(1 - member).clear();
  }
}

}  // namespace bedplate
