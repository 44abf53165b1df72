#include "transport/shm/membership/group_keeper.h"

namespace bedplate {

bool ShmGroupKeeper::is_forgotten(uint32_t member, uint64_t epoch) noexcept {
  for (uint32_t other = 0; other < segment_.shape().member_count; ++other) {
    if (other == member) continue;
    const MemberState state = members_.state(other);
    // A joining member may have looked at the table before this change, so it must acknowledge,
    // too; as must a member that counts as dead and may still run.
    if (state == MemberState::kFree || state == MemberState::kQuiet) continue;
    // Acquire: pairs with the release of the member's acknowledgement, after its last access.
    const uint64_t acknowledged =
        segment_.wrapper(other).acknowledged_epoch.load(std::memory_order_acquire);
    if (acknowledged == kWritesNoMore) continue;
    if (acknowledged < epoch) return false;
    const uint64_t held = segment_.held_loans(other)[member / 64].load(std::memory_order_acquire);
    if ((held >> (member % 64) & 1) != 0) return false;
  }
  return true;
}

void ShmGroupKeeper::wake_members() noexcept {
  for (uint32_t member = 0; member < segment_.shape().member_count; ++member) {
    // Not just ring(): a member that died may have overwritten the word.
    segment_.bell(member).wake_anyway();
  }
}

}  // namespace bedplate
