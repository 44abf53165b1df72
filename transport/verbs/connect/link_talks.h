// The talks with peers: handshakes under way, and the lifelines that they become.
//
// A talk goes over a socket, or over a call of the RDMA connection manager (connection_manager.h).
// This class hides the difference: how records are sent and read, and how a talk ends. The number
// of talks is fixed. Strangers (callers without a hello) have a limit of their own, so they cannot
// take all talks.
//
// Threads: the connector's.
//
// Invariants: 1. A talk that is not free has a socket or a call, and, unless it is a stranger, a
// link. All talks use the same transport. 2. A link has at most one lifeline, and at most one talk
// that is to become it. 3. A talk that is not a lifeline has a deadline. 4. The strangers keep
// within their limit. 5. Each open call belongs to a talk. (is_valid) 6. The stages of a talk
// follow in their order. (enter)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "platform/assert.h"
#include "platform/file.h"
#include "platform/thread_owner.h"
#include "transport/verbs/connect/connection_manager.h"
#include "transport/verbs/connect/link_events.h"
#include "transport/verbs/connect/verbs_link.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate {

struct LinkTalk {
  enum class Stage : uint8_t {
    kFree,
    kConnecting,  // connect() is under way
    kAwaitHello,
    kHeld,  // a good hello; waits until its link is down
    kAwaitWelcome,
    kAwaitReady,
    kLifeline,
  };
  Stage stage = Stage::kFree;
  Fd fd;  // either this is open, or `call` is set; neither if the talk is free
  rdma_cm_id* call = nullptr;
  VerbsLink* link = nullptr;
  uint64_t deadline_ns = 0;  // of the whole handshake; of no use to a lifeline
  size_t bytes = 0;          // how much of the record has arrived; 0: nothing, or all
  HandshakeRecord record = {};
  char host[64] = {};

  bool is_handshake() const noexcept { return stage != Stage::kFree && stage != Stage::kLifeline; }
  // Whether this end has dialed, and the peer has not answered yet.
  bool is_dialing() const noexcept {
    return stage == Stage::kConnecting || stage == Stage::kAwaitWelcome;
  }
};

// A talk may be dropped in any stage: then it is free.
constexpr bool can_follow(LinkTalk::Stage from, LinkTalk::Stage to) noexcept {
  using Stage = LinkTalk::Stage;
  switch (to) {
    case Stage::kFree: return true;
    case Stage::kConnecting:
    case Stage::kAwaitHello: return from == Stage::kFree;
    case Stage::kHeld: return from == Stage::kAwaitHello;
    case Stage::kAwaitWelcome: return from == Stage::kConnecting;
    case Stage::kAwaitReady: return from == Stage::kHeld;
    case Stage::kLifeline: return from == Stage::kAwaitWelcome || from == Stage::kAwaitReady;
  }
  return false;
}

class LinkTalks {
 public:
  static constexpr uint32_t kStrangerCountMax = 16;  // talks that have not said hello
  // A lifeline and a handshake for each peer, and the strangers.
  static constexpr uint64_t count_max(uint64_t peer_count) noexcept {
    return 2 * peer_count + kStrangerCountMax;
  }

  // The arguments outlive it.
  LinkTalks(LinkEvents& events, ConnectionManager& manager, const ThreadOwner& owner) noexcept
      : events_(events), manager_(manager), owner_(owner) {}

  // Makes the talks. Before the seal: it allocates.
  void open(uint64_t peer_count) { all_ = std::vector<LinkTalk>(count_max(peer_count)); }
  void close() noexcept;

  // All talks, including the free ones.
  std::span<LinkTalk> all() noexcept { return all_; }
  std::span<const LinkTalk> all() const noexcept { return all_; }
  // Returns a free talk, or nullptr.
  LinkTalk* free_one() noexcept;
  // The link's lifeline, or its talk that is not a lifeline yet; nullptr: none.
  LinkTalk* of(const VerbsLink& link, bool is_lifeline) noexcept;
  const LinkTalk* of(const VerbsLink& link, bool is_lifeline) const noexcept;
  LinkTalk* of(const rdma_cm_id& call) noexcept;
  // The stranger that has waited longest, if more than `count_max` wait; nullptr otherwise.
  LinkTalk* surplus_stranger(uint32_t count_max) noexcept;

  void enter(LinkTalk& talk, LinkTalk::Stage next) noexcept {
    BP_DCHECK(owner_.is_caller() && can_follow(talk.stage, next));
    talk.stage = next;
  }
  // Watches the talk's socket for `events`; a call needs no watch. Returns false if it failed;
  // errno says why.
  bool watch(LinkTalk& talk, uint32_t events) noexcept;
  // Completes `record` (finish_record), and sends it. Returns false if it failed; errno says why.
  bool send(LinkTalk& talk, HandshakeRecord& record) noexcept;
  enum class ReadResult : uint8_t { kNothing, kRecord, kHungUp };
  // Reads from a socket. kRecord: `talk.record` is complete, or has no magic of ours. kHungUp: the
  // peer hung up, the read failed, or a lifeline got bytes. Requires: the talk has a socket, is
  // connected, and is not held: the hello of a held talk is still needed.
  ReadResult read(LinkTalk& talk) noexcept;
  // Ends the talk, in any stage. The peer sees a hang-up.
  void drop(LinkTalk& talk) noexcept;

  bool is_valid() const noexcept;

 private:
  bool is_valid(const LinkTalk& talk) const noexcept;

  std::vector<LinkTalk> all_;
  LinkEvents& events_;
  ConnectionManager& manager_;
  const ThreadOwner& owner_;
};

}  // namespace bedplate
