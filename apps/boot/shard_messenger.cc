#include "apps/boot/shard_messenger.h"

namespace bedplate {

// One fence serves all groups: each untrusted process has a group, and each membarrier interrupts
// all running members.
void ShardMessenger::announce_sleep() noexcept {
  for (ShmProvider* group : groups_) group->raise_bell();
  if (!groups_.empty()) pass_bell_fence(groups_[0]->segment().fence());  // the same for all
  if (peers_ != nullptr) peers_->announce_sleep();
  messenger_.prepare_last_look();
  if (watch_ != nullptr) watch_->announce_sleep();
}

void ShardMessenger::announce_awake() noexcept {
  for (ShmProvider* group : groups_) group->announce_awake();
  if (peers_ != nullptr) peers_->announce_awake();
}

}  // namespace bedplate
