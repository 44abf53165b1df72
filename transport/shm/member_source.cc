#include "transport/shm/member_source.h"

#include "transport/shm/shm_provider.h"

namespace bedplate {

Result<void> MemberSource::start(Doorbell& doorbell) {
  return watch_.start({parts_.shm.bell()}, doorbell, &parts_.members);
}

void MemberSource::announce_sleep() noexcept {
  parts_.shm.announce_sleep();
  watch_.announce_sleep();
}

void MemberSource::announce_awake() noexcept { parts_.shm.announce_awake(); }

Result<void> MemberDescriptor::create() {
  BP_TRY(doorbell_.create());
  return source_.start(doorbell_);
}

bool MemberDescriptor::arm() noexcept {
  disarm();
  doorbell_.announce_sleep();
  source_.announce_sleep();
  is_armed_ = true;
  if (source_.poll(kLookBudget) == 0) return true;
  disarm();
  return false;
}

// Quiet last: a ring that was on its way may still come, and then a wait ends early.
void MemberDescriptor::disarm() noexcept {
  if (!is_armed_) return;
  is_armed_ = false;
  source_.announce_awake();
  doorbell_.announce_awake();
  doorbell_.acknowledge();
}

}  // namespace bedplate
