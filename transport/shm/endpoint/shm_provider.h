// The shared-memory provider: active messages, loans, puts and gets between the members of a group.
//
// An object serves one member: one shard of one process. It follows the members table, and drives
// its parts. ShmEndpoint sends to one peer, Inbox reads the queues that peers write, ShmDispatch
// checks and delivers the messages. Lender and Borrower have the loans. OperationTable and
// Exposures have the two sides of puts, gets and atomics.
//
//     send: OutgoingPath has one queue to the peer: its FIFO, a box of the peer, or its lane
//       closed -> gone; no room -> again
//       short message: in the slot; long, or by a lane: in the box, or this member's eager region
//       loan: the slot has the address of the block
//       put, get, atomic: done here if both may access the memory; else a put or get by single
//         copy; else the slot asks the peer, which answers in this member's eager region
//       publish the slot; if the peer's bell says asleep, wake the peer
//     wake: mark the bell as being woken; futex(2), or the doorbell of the peer's event loop
//     sleep: raise the bell, pass the fence, poll once more, wait; look at the owner every 50 ms
//     poll:
//       the members table has changed -> follow it: a peer has died, or the owner has (below)
//       mark released loans in their lenders' bytes; end own loans and operations that are done
//       for each slot of the inbox:
//         a claimed one waits until its writer publishes, dies or is late
//         ShmDispatch reads it once and checks it: nonsense -> its sender is cut off
//         a request -> do it, and wake its sender; a message or loan -> its handler
//     a peer dies: deliver its box or lane; close the path: sends say gone, operations end as not
//       done or unknown; deliver the FIFO up to the first unclaimed slot; ignore the peer; tell
//       kLeft; acknowledge, so that its place may be another's; once it is quiet, loans to it end
//     the owner dies: close all paths; tell kPoolGone; messages in the queues are still delivered
#pragma once

#include <cstdint>
#include <span>

#include "pinned_pool/join/membership.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "platform/log_limit.h"
#include "platform/units.h"
#include "transport/messages/locking_provider.h"
#include "transport/messages/peer_event.h"
#include "transport/messages/provider.h"
#include "transport/shm/endpoint/borrower.h"
#include "transport/shm/endpoint/endpoint_table.h"
#include "transport/shm/endpoint/shm_dispatch.h"
#include "transport/shm/endpoint/shm_endpoint.h"
#include "transport/shm/membership/group_segment.h"
#include "transport/shm/membership/membership_view.h"
#include "transport/shm/queue/inbox.h"

namespace bedplate {

struct ShmProviderOptions {
  GroupSegment segment;
  const MembersTable* members = nullptr;
  uint32_t member = 0;  // this member's number
  // Several threads use this provider through a LockingProvider, in turn. They also use it during a
  // poll's callbacks, and while the polling shard sleeps. So loans are returned at their release,
  // not at the next poll.
  bool is_locked = false;
  const PinnedPool* pool = nullptr;   // contains all loans; nullptr: the process's
  SingleCopy* single_copy = nullptr;  // for memory outside the pool; nullptr: the target copies it
  const char* name = "shm";           // name of this provider in its endpoints; outlives this
  // The doorbell of each member, by its number, if all members are event loops of this process;
  // else empty. A doorbell wakes its member in place of the bell's futex. They outlive this.
  std::span<Doorbell* const> doorbells = {};
  PeerEventHandler on_peer = {};    // called from create(), too, for members that are alive already
  ShmCounters* counters = nullptr;  // outlive this; nullptr: the provider's own
};

// Invariants: 1. returning_count is the number of paths that have a box to give back. 2. Once the
// pool has lost its owner no path is open. (is_valid, at the start and end of a poll)
class ShmProvider final : public Provider {
 public:
  ShmProvider() noexcept = default;
  ShmProvider(const ShmProvider&) = delete;
  ShmProvider& operator=(const ShmProvider&) = delete;
  ~ShmProvider() override;

  // The limits for a LockingProvider in front of it, if several threads send.
  static LockingLimits locking_limits(const GroupShape& shape) noexcept {
    return {.endpoint_count = shape.member_count,
            .completion_count = shape.loan_count + kOperationCountMax};
  }

  // Allocates. Called once. Requires: the member is this process's; reset_member has reset its part
  // of the segment; `dispatcher`, and all that `options` point to, outlive this. Errors: membarrier
  // is not allowed and the group's bell needs it; SingleCopy::card's.
  Result<void> create(const ShmProviderOptions& options, const Dispatcher& dispatcher);

  const char* name() const noexcept override { return parts_.name; }
  Result<Endpoint*> connect(const PeerAddress& peer) override;
  uint32_t poll(uint32_t budget) noexcept override;
  void release(const Loan& loan) noexcept override {
    BP_DREQUIRE_THREAD(is_own_thread(), "Messenger::release");
    borrower_.release(loan);
  }
  void announce_sleep() noexcept override {
    raise_bell();
    pass_bell_fence(segment().fence());
  }
  // announce_sleep() without the fence, for a caller that raises several bells and passes one fence
  // after all.
  void raise_bell() noexcept {
    BP_DCHECK(is_own_thread());
    bell_.raise();
    polls_ = 0;  // so the last look collects returned loans, too
  }
  void announce_awake() noexcept override {
    BP_DCHECK(is_own_thread());
    bell_.announce_awake();
  }
  void sleep(uint64_t timeout_ns) noexcept override;
  bool can_sleep() const noexcept override { return true; }
  // Behind a lock its LockingProvider is the one that has a messenger.
  void follow(const ThreadOwner& loop) noexcept override { parts_.owner.follow(loop); }

  uint32_t member() const noexcept { return group().self(); }
  const FutexBell& bell() const noexcept { return bell_; }
  const GroupSegment& segment() const noexcept { return group().segment(); }
  uint32_t loans_out() const noexcept { return parts_.lender.out_count(); }
  uint32_t inbound_box_count() const noexcept { return inbox_.box_count(); }

  bool is_valid() const noexcept;

 private:
  // The provider collects returned loans once in this many polls, and again in the next poll if
  // many had come back: each look takes the cache line away from the borrower that returns loans.
  static constexpr uint32_t kPollsPerCollection = 256;
  // A sleeper checks this often whether the owner lives: nobody wakes it when the owner is killed.
  static constexpr uint64_t kOwnerCheckNs = 50 * kNsPerMs;

  const GroupView& group() const noexcept { return parts_.outgoing.group; }
  bool is_own_thread() const noexcept { return parts_.owner.is_caller(); }
  Result<uint32_t> find_peer(const PeerAddress& peer) const noexcept;
  // Whether the peer can be connected to; else `error` has the reason.
  bool can_connect(uint32_t peer, Error& error) const noexcept;
  // Gives back boxes that peers want back. poll() calls it: this member may send nothing more.
  void settle_returns() noexcept;
  // Logs what the datapath has recorded.
  void report() noexcept;

  // shm_members.cc
  void follow_members() noexcept;
  // The next three return false if a message waits for memory; then the next poll calls them again.
  bool look_at_members() noexcept;
  bool member_changed(uint32_t member, KnownMember before, const MemberWord& now) noexcept;
  bool deal_with_death(uint32_t member, KnownMember before, uint64_t generation) noexcept;
  void acknowledge_if_drained() noexcept;
  void stop_sending() noexcept;
  void die() noexcept;
  void bury(uint32_t member) noexcept;
  void look_for_cut_offs() noexcept;
  void tell(PeerEventKind kind, uint32_t member, uint64_t generation) noexcept;

  ShmParts parts_;
  MembershipView view_;
  EndpointTable endpoints_;
  Borrower borrower_;
  ShmDispatch dispatch_;
  Inbox inbox_;

  bool is_locked_ = false;
  FutexBell bell_;
  MemberWrapper* wrapper_ = nullptr;
  uint32_t seen_notices_ = 0;
  uint32_t polls_ = 0;
  LogLimit cut_off_lines_{16};  // for the group; each untrusted member has a group of its own

  PeerEventHandler on_peer_;
  bool has_told_ = false;  // since the last poll
  ShmCounters own_counters_;
  ShmCounters* counters_ = &own_counters_;
};

}  // namespace bedplate
