#include "apps/boot/shard_messenger.h"

namespace bedplate {

// One fence for all groups: strangers bring a group each, and a membarrier interrupts those awake.
void ShardMessenger::announce_sleep() noexcept {
  for (ShmProvider* group : groups_) group->raise_bell();
  if (!groups_.empty()) pass_bell_fence(groups_[0]->segment().fence());  // all have the same
  if (peers_ != nullptr) peers_->announce_sleep();
  messenger_.prepare_last_look();
  if (watch_ != nullptr) watch_->announce_sleep();
}

void ShardMessenger::announce_awake() noexcept {
  for (ShmProvider* group : groups_) group->announce_awake();
  if (peers_ != nullptr) peers_->announce_awake();
}

}  // namespace bedplate
