// The messenger of the services of one shard. It has all providers of the shard, in this order: the
// shard itself; the other shards of the process; then, in any order, the groups of [[group]] and
// [[process]] (on the first shard) and the peers of [verbs] (on the shard that [verbs] names).
//
// Endpoints are found by the name that the configuration gives to a shard, a process or a peer. If
// a process or peer has a shard's name, the name means the shard. No process has a peer's name: the
// configuration refuses that (apps/peers/verbs_tables.cc).
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "transport/loop/event_loop.h"
#include "transport/messages/messenger.h"
#include "transport/self/self_provider.h"
#include "transport/shm/endpoint/shm_provider.h"
#include "transport/shm/queue/bell_watch.h"

namespace bedplate {

class ShardMessenger final : public PollSource {
 public:
  // `name` is the shard's name; `names` are the names of the process's messages; `loop` is the
  // shard's (EventLoop::thread), nullptr in tests without one. All outlive this object.
  ShardMessenger(const char* name, uint32_t shard, const MessageNames& names,
                 const ThreadOwner* loop = nullptr)
      : self_(shard, messenger_.dispatcher(), name) {
    if (loop != nullptr) messenger_.follow(*loop);
    messenger_.answer_names(names);
    messenger_.add_provider(self_);
  }
  ShardMessenger(const ShardMessenger&) = delete;
  ShardMessenger& operator=(const ShardMessenger&) = delete;

  Messenger& messenger() noexcept { return messenger_; }

  // Call the next three functions before the loop runs; their arguments outlive the loop.
  void add_group(ShmProvider& group) {
    BP_DCHECK(std::find(groups_.begin(), groups_.end(), &group) == groups_.end());
    messenger_.add_provider(group);
    groups_.push_back(&group);
  }
  void add_peers(Provider& peers) {
    BP_DCHECK(peers_ == nullptr);
    messenger_.add_provider(peers);
    peers_ = &peers;
  }
  // Sets the watch that waits on the bells of groups with other processes as members. Requires:
  // add_group() was called.
  void set_watch(BellWatch& watch) noexcept {
    BP_DCHECK(watch_ == nullptr && !groups_.empty());
    watch_ = &watch;
  }

  // PollSource:
  uint32_t poll(uint32_t budget) noexcept override { return messenger_.poll(budget); }
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;
  uint64_t sleep_max_ns() const noexcept override { return messenger_.sleep_max_ns(); }

 private:
  Messenger messenger_;
  SelfProvider self_;
  std::vector<ShmProvider*> groups_;
  Provider* peers_ = nullptr;
  BellWatch* watch_ = nullptr;
};

}  // namespace bedplate
