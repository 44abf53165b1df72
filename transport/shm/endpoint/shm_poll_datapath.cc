#include <utility>

#include "platform/assert.h"
#include "platform/thread_owner.h"
#include "transport/shm/endpoint/shm_provider.h"

namespace bedplate {

uint32_t ShmProvider::poll(uint32_t budget) noexcept {
  // A LockingProvider releases its lock around callbacks, so another thread may hold the owner
  // meanwhile.
  ThreadOwner nobodys;
  const ThreadOwner::DebugHold hold(is_locked_ ? nobodys : parts_.owner);
  BP_KEEPS_VALID(*this);
  const MembersTable& members = group().members();
  if (BP_UNLIKELY(members.epoch() != view_.seen_epoch() || members.is_owner_gone())) {
    follow_members();
  }
  if (BP_UNLIKELY(view_.is_dead())) return std::exchange(has_told_, false) ? 1 : 0;
  if (BP_UNLIKELY(wrapper_->notices.load(std::memory_order_acquire) != seen_notices_)) {
    look_for_cut_offs();
  }
  if (borrower_.has_released()) borrower_.give_back_released();
  uint32_t count = 0;
  if (parts_.lender.out_count() > 0 && polls_++ % kPollsPerCollection == 0) {
    const uint32_t ended_count = parts_.lender.collect();
    if (ended_count == Lender::kBatch) polls_ = 0;  // the next poll collects the others
    count += ended_count;
  }
  if (BP_UNLIKELY(!parts_.operations.is_idle())) count += parts_.operations.poll();
  if (BP_UNLIKELY(parts_.outgoing.returning_count > 0)) {
    settle_returns();
  }
  count += inbox_.poll(budget);
  if (BP_UNLIKELY(view_.epoch_to_acknowledge() != 0)) acknowledge_if_drained();
  if (count > 0) counters_->received.set(dispatch_.received_count());
  if (BP_UNLIKELY(dispatch_.lacks_memory())) {
    dispatch_.retry_memory();
    ++count;  // a waiting message counts as work: nobody wakes this shard when there is memory
  }
  if (BP_UNLIKELY(dispatch_.has_news() || endpoints_.has_news())) report();
  // The program got an event that it may have waited for: do not let it sleep now.
  if (BP_UNLIKELY(std::exchange(has_told_, false)) && count == 0) count = 1;
  return count;
}

}  // namespace bedplate
