// The group of the appliance's first shard and all MessagePeers of a test: the part that
// boot/messaging.h has in a real appliance, without processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/boot/shard_messenger.h"
#include "apps/testing/message_peer.h"
#include "pinned_pool/join/membership.h"
#include "pinned_pool/pinned_pool.h"
#include "transport/shm/endpoint/shm_provider.h"

namespace bedplate::testing {

// Threads: the test's.
class MessageGroup {
 public:
  explicit MessageGroup(PinnedPool& pool) noexcept : pool_(pool) {}
  MessageGroup(const MessageGroup&) = delete;
  MessageGroup& operator=(const MessageGroup&) = delete;
  ~MessageGroup();

  // Adds a peer; before create(). Ownership: the group's.
  MessagePeer& add(std::string name);
  bool is_empty() const noexcept { return peers_.empty(); }

  // Makes the group: the appliance is member 0, through `messenger`. All arguments outlive this.
  // Requires: it is not empty. Errors: the pool's; OwnerLife::hold's.
  Result<void> create(ShardMessenger& messenger, const std::string& appliance,
                      const MessageNames& names);
  // Lets all peers join: from here on services find them. Requires: create(). Errors:
  // ShmProvider::create's.
  Result<void> join_all();
  // Polls the messengers of all peers, and buries those that have died. Returns how much there was
  // to do.
  uint32_t poll() noexcept;

 private:
  friend class MessagePeer;

  Result<std::span<std::byte>> take(const char* owner, uint64_t bytes);
  // Lets `member` join under `name`, through `shm`, which delivers to `dispatcher`.
  Result<void> join(uint32_t member, const std::string& name, ShmProvider& shm,
                    const Dispatcher& dispatcher);
  uint32_t bury_the_dead() noexcept;

  PinnedPool& pool_;
  const MessageNames* names_ = nullptr;
  MembersTable* table_ = nullptr;
  GroupSegment segment_;
  std::unique_ptr<ShmProvider> appliance_;
  std::vector<std::unique_ptr<MessagePeer>> peers_;
};

}  // namespace bedplate::testing
