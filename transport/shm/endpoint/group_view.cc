#include "transport/shm/endpoint/group_view.h"

#include "pinned_pool/boot_segment.h"

namespace bedplate {

FutexBell GroupView::bell_of(uint32_t member) const noexcept {
  FutexBell bell = all_.segment.bell(member);
  if (!all_.doorbells.empty()) bell.wake_by(*all_.doorbells[member]);
  return bell;
}

bool GroupView::answers_no_more(uint32_t member, uint64_t generation) const noexcept {
  BP_DCHECK(is_peer(member));
  const MemberWord word = all_.members->word(member);
  return word.generation != generation || word.state == MemberState::kQuiet ||
         word.state == MemberState::kFree || all_.segment.writes_no_more(member) ||
         all_.segment.has_cut_off(member, all_.self);
}

const Segment* GroupView::shared_segment(const void* memory, uint64_t bytes) const noexcept {
  const Segment* segment = all_.pool->segment_of(memory);
  if (segment == nullptr) return nullptr;
  // Each process has its own segment 0, at the same address. (With doorbells, all members are of
  // this process.)
  const bool is_own = all_.pool == &process_pool() && segment == &all_.pool->segment(0);
  if (is_own && all_.doorbells.empty()) return nullptr;
  const auto offset =
      static_cast<uint64_t>(static_cast<const std::byte*>(memory) - segment->address);
  BP_DCHECK(offset < segment->bytes);
  return bytes <= segment->bytes - offset ? segment : nullptr;
}

}  // namespace bedplate
