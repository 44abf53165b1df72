// A group in its own memory. A test polls its members explicitly: one thread plays all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "pinned_pool/join/membership.h"
#include "transport/messages/messenger.h"
#include "transport/shm/endpoint/shm_provider.h"

#include "tests/support/bytes_of.h"

namespace bedplate::test {

constexpr GroupKind kGroupKinds[] = {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange};

// An exchange always has two members.
inline GroupShape shape_of(GroupKind kind, uint32_t member_count) {
  GroupShape shape;
  shape.kind = kind;
  shape.member_count = kind == GroupKind::kExchange ? 2 : member_count;
  shape.box_count = default_box_count(shape.member_count);
  return shape;
}

// A completion that counts its calls and records the last outcome.
struct Counted : Completion {
  Counted() {
    call = [](Completion& self, Outcome how) noexcept {
      ++static_cast<Counted&>(self).count;
      static_cast<Counted&>(self).outcome = how;
    };
  }
  int count = 0;
  Outcome outcome = Outcome::kNotDone;
};

// One member with all its objects, its received messages and its events.
struct Member {
  struct Received {
    uint32_t from;
    AmId id;
    std::string payload;
    Loan loan;
  };

  Messenger messenger;
  ShmCounters counters;
  ShmProvider shm;
  std::unique_ptr<LockingProvider> locking;  // of a member that several threads use
  std::vector<Received> received;
  std::vector<PeerEvent> events;

  Endpoint& to(uint32_t peer) {
    auto endpoint = messenger.connect({peer});
    BP_ASSERT(endpoint.ok());
    return *endpoint.value();
  }
  ShmEndpoint& shm_endpoint(Endpoint& endpoint) const {
    return static_cast<ShmEndpoint&>(locking ? LockingProvider::wrapped(endpoint) : endpoint);
  }
};

class GroupRig {
 public:
  static constexpr PoolId kPoolId = {7, 8};

  explicit GroupRig(const GroupShape& shape, const PinnedPool* pool = nullptr)
      : layout_(shape), pool_(pool) {
    group_ = map(layout_.bytes());
    table_ = map(MembersTable::bytes_for(shape.member_count));
    members_ = MembersTable::create(table_, shape.member_count, kPoolId);
    BP_ASSERT(members_->hold_owner_life().ok());
    segment_ = GroupSegment::create(group_, shape, kPoolId, BellFence::kSleeper);
    for (uint32_t i = 0; i < shape.member_count; ++i) all_.push_back(nullptr);
  }
  GroupRig(const GroupRig&) = delete;
  GroupRig& operator=(const GroupRig&) = delete;
  ~GroupRig() {
    all_.clear();
    if (!members_->is_owner_gone()) members_->release_owner_life();
    munmap(group_.data(), group_.size());
    munmap(table_.data(), table_.size());
  }

  GroupSegment& segment() { return segment_; }
  MembersTable& members() { return *members_; }
  // A member's entry in the table, which the owner writes.
  MemberEntry& entry(uint32_t index) {
    return reinterpret_cast<MemberEntry*>(table_.data() + kMembersHeaderBytes)[index];
  }

  // Lets member `index` join. The other members notice at their next poll.
  Member& join(uint32_t index, bool is_threaded = false,
               const SegmentRights& rights = SegmentRights::all()) {
    members_->begin_join(index, pid, MemberName("member"), rights);
    members_->set_state(index, MemberState::kAlive);
    return attach(index, is_threaded);
  }
  // The process's part of a join. A forked child also calls it, for a member that has joined.
  Member& attach(uint32_t index, bool is_threaded = false) {
    all_[index] = std::make_unique<Member>();
    Member& member = *all_[index];
    ShmProviderOptions options;
    options.segment = segment_;
    options.members = members_;
    options.member = index;
    options.pool = pool_;
    options.single_copy = single_copy;
    options.counters = &member.counters;
    options.on_peer = {[](void* context, const PeerEvent& event) noexcept {
                         static_cast<Member*>(context)->events.push_back(event);
                       },
                       &member};
    for (uint32_t id = 0; id < kHandledAmCount; ++id) {
      member.messenger.set_handler(
          static_cast<AmId>(id),
          {[](void* context, const Message& message) noexcept {
             auto& receiver = *static_cast<Member*>(context);
             receiver.received.push_back(
                 {receiver.shm_endpoint(message.from).peer(),
                  message.id,
                  {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()},
                  message.loan});
           },
           &member});
    }
    const Dispatcher* dispatcher = &member.messenger.dispatcher();
    Provider* provider = &member.shm;
    if (is_threaded) {
      member.locking = std::make_unique<LockingProvider>(
          member.shm, *dispatcher, ShmProvider::locking_limits(segment_.shape()));
      options.is_locked = true;
      options.on_peer = member.locking->events_to(options.on_peer);
      dispatcher = &member.locking->dispatcher();
      provider = member.locking.get();
    }
    BP_ASSERT(member.shm.create(options, *dispatcher).ok());
    member.messenger.add_provider(*provider);
    return member;
  }
  // Ends the member like SIGKILL: its objects vanish, and the owner records its death.
  void kill(uint32_t index) {
    all_[index].reset();
    segment_.wrapper(index).acknowledged_epoch.store(kWritesNoMore);
    members_->set_state(index, MemberState::kDead);
  }
  // Kills the member, unless it is dead already. The others acknowledge, and its slot becomes free.
  void bury(uint32_t index) {
    if (all_[index] != nullptr) kill(index);
    poll();
    members_->set_state(index, MemberState::kQuiet);
    poll();
    segment_.reset_member(index);
    members_->set_state(index, MemberState::kFree);
    poll();
  }
  // Polls each member three times.
  void poll() {
    for (int i = 0; i < 3; ++i) {
      for (const auto& member : all_) {
        if (member) member->messenger.poll(64);
      }
    }
  }
  // Claims a slot of the receiver's FIFO in the sender's name.
  InboundFifo::Claim claim(uint32_t receiver, uint32_t sender) {
    uint64_t known = segment_.fifo(receiver).tail();
    return segment_.fifo(receiver).try_claim(sender, &known);
  }

  static constexpr uint32_t kHandledAmCount = 200;
  uint32_t pid = 1000;                // of members that join from now on
  SingleCopy* single_copy = nullptr;  // of members that are attached from now on

 private:
  static std::span<std::byte> map(uint64_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BP_ASSERT(memory != MAP_FAILED);
    return {static_cast<std::byte*>(memory), bytes};
  }

  GroupLayout layout_;
  const PinnedPool* pool_;
  std::span<std::byte> group_;
  std::span<std::byte> table_;
  MembersTable* members_ = nullptr;
  GroupSegment segment_;
  std::vector<std::unique_ptr<Member>> all_;
};

inline bool has_box(Endpoint& endpoint) { return static_cast<ShmEndpoint&>(endpoint).has_box(); }

// Sends `count` messages. The receiver reads each at once.
inline void talk(Member& from, Member& receiver, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    BP_ASSERT(from.to(receiver.shm.member()).am_send(1, bytes_of("talk")) == SendStatus::kDone);
    receiver.messenger.poll(64);
  }
}

}  // namespace bedplate::test
