// The shared-memory provider: active messages, loans, puts and gets between the members of a group.
//
// One object for one member: one shard of one process. It polls what others send to this member,
// follows the members table, and makes an endpoint for each peer that is sent to or heard from.
//
// What others have written is read once, checked and then used; who writes nonsense is cut off.
// Between members that do not trust one another (GroupKind::kExchange) payloads are copied out of
// the segment before a handler sees them.
//
// Split by what it is about: shm_provider.cc (making and closing it, peers),
// shm_receive_datapath.cc (what arrives), shm_boxes.cc (who has a fast box), shm_members.cc (who
// joins, dies, is forgotten, is cut off), shm_operations.cc (put, get, atomics), shm_exposures.cc
// (their target's side).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "pinned_pool/join/membership.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/counter.h"
#include "platform/log_limit.h"
#include "platform/units.h"
#include "transport/peer_event.h"
#include "transport/provider.h"
#include "transport/shm/endpoint_table.h"
#include "transport/shm/group_segment.h"
#include "transport/shm/loan_table_datapath.h"
#include "transport/shm/peer_share_datapath.h"
#include "transport/shm/shm_endpoint.h"

namespace bedplate {

// What a control slot asks for; its body is a box's number, or an operation's place.
enum class ShmControl : uint32_t {
  kBoxGranted,  // a box for what you send me
  kBoxWanted,   // please give it back
  kBoxClosed,   // here it is: empty, and nothing more goes through it
  kOperation,   // shm_operations.h
};

// Written by the shard that polls.
struct ShmCounters {
  Counter received;
  Counter unhandled;     // messages that no handler was set for
  Counter torn;          // slots that a member claimed and did not publish in time
  Counter cut_off;       // members that wrote nonsense
  Counter memory_waits;  // polls that stopped at a message of somebody new for want of memory
  Counter boxes_granted;
  Counter boxes_returned;
};

struct ShmProviderOptions {
  GroupSegment segment;
  const MembersTable* members = nullptr;
  uint32_t member = 0;                // which one this is
  bool is_threaded = false;           // endpoints are used by several threads
  const PinnedPool* pool = nullptr;   // where loans may lie; nullptr: the process's
  SingleCopy* single_copy = nullptr;  // for memory outside the pool; nullptr: the target copies it
  const char* name = "shm";           // what endpoints call the way; outlives this
  // For members that are event loops of this process: what wakes each, instead of its bell's futex.
  std::span<Doorbell* const> doorbells = {};
  PeerEventHandler on_peer = {};
  ShmCounters* counters = nullptr;
};

class ShmProvider final : public Provider {
 public:
  ShmProvider() noexcept = default;
  ShmProvider(const ShmProvider&) = delete;
  ShmProvider& operator=(const ShmProvider&) = delete;
  ~ShmProvider() override;

  // Requires: the member is this process's, its part of the segment as reset_member leaves it.
  // Errors: membarrier is not allowed and the group's bell needs it.
  Result<void> create(const ShmProviderOptions& options, const Dispatcher& dispatcher);

  const char* name() const noexcept override { return name_; }
  Result<Endpoint*> connect(const PeerAddress& peer) override;
  uint32_t poll(uint32_t budget) noexcept override;
  void release(const Loan& loan) noexcept override;
  void announce_sleep() noexcept override {
    raise_bell();
    pass_bell_fence(segment_.fence());
  }
  // The same without the fence, for who announces several and passes one after them all.
  void raise_bell() noexcept {
    bell_.raise();
    polls_ = 0;  // the last look is a thorough one
  }
  void announce_awake() noexcept override { bell_.announce_awake(); }
  void sleep(uint64_t timeout_ns) noexcept override;
  bool can_sleep() const noexcept override { return true; }

  uint32_t member() const noexcept { return self_; }
  const FutexBell& bell() const noexcept { return bell_; }
  const GroupSegment& segment() const noexcept { return segment_; }
  uint32_t loans_out() const noexcept { return loans_.out_count(); }
  uint32_t inbound_box_count() const noexcept { return inbound_box_count_; }

 private:
  friend class ShmEndpoint;
  static constexpr size_t kLoanBatch = 32;

  // Loans are looked for at every so many polls: each look takes the line from who returns.
  static constexpr uint32_t kPollsPerCollection = 256;
  // A claim in the way is looked at by the clock at every so many polls: mostly it is published
  // within the next few.
  static constexpr uint32_t kPollsPerClaimCheck = 64;
  static constexpr uint32_t kReleasedCountMax = 32;
  // A sleeper looks this often whether the owner lives: nobody wakes it when the owner is killed.
  static constexpr uint64_t kOwnerCheckNs = 50 * kNsPerMs;

  struct Return {
    uint64_t generation = 0;  // the lender's, as far as a token has room for it
    uint32_t lender = 0;
    uint16_t loan = 0;
    uint8_t mark = 0;
  };
  // What is remembered of a member: its state, and of its generation as much as tells it from the
  // next one. A place changes hands only after every living and joining member has acknowledged
  // that it was left, so between two looks of ours there is one change at most. (Who is dead to
  // the others and polls all the same may miss some; nothing is for it any more.)
  struct KnownMember {
    uint8_t bits = 0;

    static KnownMember of(const MemberWord& word) noexcept {
      return {static_cast<uint8_t>(word.generation << 4 | static_cast<uint8_t>(word.state))};
    }
    MemberState state() const noexcept { return static_cast<MemberState>(bits & 15); }
    bool is_generation_of(const KnownMember& other) const noexcept {
      return bits >> 4 == other.bits >> 4;
    }
    bool operator==(const KnownMember&) const noexcept = default;
  };
  struct InboundBox {
    FastBoxConsumer consumer;
    uint32_t index = 0;
    uint32_t sender = 0;
    uint64_t last_used = 0;  // received_ at its last message
    bool is_wanted_back = false;
  };

  FutexBell bell_of(uint32_t member) const noexcept;
  Result<uint32_t> find_peer(const PeerAddress& peer) const noexcept;
  // The peer that wrote to us; nullptr: none that may.
  // (or, with lacks_memory_, somebody for whom there is no memory now: it will be asked for again)
  ShmEndpoint* sender_of(uint32_t member) noexcept;
  // Allocates, once for each member. nullptr: there is no memory.
  ShmEndpoint* try_make_endpoint(uint32_t member) noexcept;
  void wait_for_memory(uint32_t member) noexcept;
  bool is_peer(uint32_t member) const noexcept {
    return member < segment_.shape().member_count && member != self_;
  }
  bool is_alive(uint32_t member) const noexcept {
    return members_->state(member) == MemberState::kAlive;
  }
  // Whether it has ended, left or was cut off by the owner. It may run and write all the same.
  bool has_died(uint32_t member) const noexcept {
    const MemberState state = members_->state(member);
    return state != MemberState::kAlive && state != MemberState::kJoining;
  }
  // Whether no store of `member`, in that generation, into our part can come any more: it has
  // ended, has said so, or ignores what we ask.
  bool answers_no_more(uint32_t member, uint64_t generation) const noexcept;
  // Whether all of `member`, in the generation that the table has now, was delivered and its end
  // was told.
  bool is_buried(uint32_t member) const noexcept;
  // The segment that all of it lies in, of those that others may have mapped, too; else nullptr.
  const Segment* shared_segment(const void* memory, uint64_t bytes) const noexcept;

  // What all endpoints share; with the lock where there are threads.
  EagerRegion::Piece take_eager(ShmEndpoint& endpoint, uint64_t bytes) noexcept;
  void use_eager(const EagerRegion::Piece& piece, const EagerRegion::Use& use) noexcept;
  void hold_eager(const EagerRegion::Piece& piece, uint32_t member) noexcept;
  void cancel_eager(const EagerRegion::Piece& piece) noexcept;
  // What the one who was in `member`'s place before has not consumed.
  void forget_eager(uint32_t member) noexcept;
  LoanTable::Lent lend(std::byte* block, Completion* returned, uint32_t member) noexcept;
  void cancel_loan(uint32_t loan, uint32_t member) noexcept;

  // shm_receive_datapath.cc
  uint32_t poll_fifo(uint32_t budget) noexcept;
  enum class ClaimEnd : uint8_t { kWait, kPassed, kPublished };
  ClaimEnd end_claim(const SlotHeader& claim, bool* is_awaited) noexcept;
  bool is_overdue(bool* is_awaited) noexcept;
  uint32_t poll_boxes(uint32_t budget) noexcept;
  uint32_t poll_box(InboundBox& box, uint32_t budget) noexcept;
  uint32_t poll_lanes(uint32_t budget) noexcept;
  uint32_t poll_lane(uint32_t sender, uint32_t budget) noexcept;
  void handle(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
              const FastBoxConsumer* box) noexcept;
  void handle_loan(ShmEndpoint& from, const SlotHeader& header, const std::byte* body) noexcept;
  void handle_control(ShmEndpoint& from, const SlotHeader& header, const std::byte* body,
                      bool came_by_box) noexcept;
  void deliver(ShmEndpoint& from, uint32_t am, const std::byte* payload, uint32_t bytes,
               const Loan& loan) noexcept;
  void set_held(uint32_t lender, bool is_held) noexcept;
  void give_back(const Return& loan) noexcept;
  void refuse_loan(const ShmEndpoint& from, const LoanDescriptor& descriptor) noexcept;
  void ignore(ShmEndpoint& from, SlotKind kind, const std::byte* body) noexcept;
  void give_back_released() noexcept;
  uint32_t collect_loans() noexcept;
  static void finish_loan(const LoanTable::Record& record, Outcome outcome) noexcept;

  // shm_boxes.cc
  void grant_box(ShmEndpoint& to) noexcept;
  uint32_t take_free_box(uint32_t sender) noexcept;
  void ask_for_idle_box() noexcept;
  void accept_box(ShmEndpoint& from, uint32_t box) noexcept;
  void give_box_back(ShmEndpoint& from, uint32_t box) noexcept;
  void close_box(ShmEndpoint& from, uint32_t box) noexcept;
  void return_boxes() noexcept;
  void drop_inbound_box(uint32_t place) noexcept;

  // shm_operations.cc
  bool is_reachable(uint32_t peer, const RemoteMemory& memory, OperationKind kind) const noexcept;
  Operation* keep_operation(ShmEndpoint& endpoint, const Operation& operation) noexcept;
  void forget_operation(Operation& operation) noexcept;
  ShmEndpoint* endpoint_of(const Operation& operation) noexcept;
  bool has_operations(const ShmEndpoint& endpoint, uint64_t before) noexcept;
  uint32_t next_piece_bytes(const Operation& operation) const noexcept;
  uint32_t poll_operations() noexcept;
  void report_single_copy(const Error& error) noexcept;

  // shm_exposures.cc
  void handle_operation(ShmEndpoint& from, const std::byte* body) noexcept;
  const Exposure* find_exposure(const ShmEndpoint& peer, uint64_t kind, uint64_t address,
                                uint64_t bytes) const noexcept;

  // shm_members.cc
  void follow_members() noexcept;
  // These three return false where something waits for memory: they are to be called again.
  bool look_at_members() noexcept;
  bool member_changed(uint32_t member, KnownMember before, const MemberWord& now) noexcept;
  bool drain(uint32_t member) noexcept;
  // The number of the first slot of the FIFO that nobody has taken.
  uint64_t first_unclaimed() const noexcept;
  void acknowledge_if_drained() noexcept;
  void stop_sending() noexcept;
  void die() noexcept;
  void bury(uint32_t member) noexcept;
  void look_for_cut_offs() noexcept;
  void return_loans_of(uint32_t member) noexcept;
  void cut_off(ShmEndpoint& peer, const char* what) noexcept;
  void tell(PeerEventKind kind, uint32_t member, uint64_t generation) noexcept;

  const char* name_ = "shm";
  std::span<Doorbell* const> doorbells_;
  GroupSegment segment_;
  const MembersTable* members_ = nullptr;
  const Dispatcher* dispatcher_ = nullptr;
  const PinnedPool* pool_ = nullptr;
  uint32_t self_ = 0;
  bool is_threaded_ = false;
  bool is_pool_gone_ = false;  // or this member is dead to the others: it sends nothing more
  bool is_dead_ = false;       // to the others: it writes nothing more
  GroupKind kind_ = GroupKind::kLazy;
  FutexBell bell_;
  EndpointLimits limits_;
  MemberWrapper* wrapper_ = nullptr;
  uint32_t seen_notices_ = 0;

  // What arrives.
  uint64_t seen_epoch_ = 0;
  bool has_looked_ = true;  // at all members, when they changed last
  InboundFifo fifo_;
  uint64_t tail_ = 0;
  uint64_t received_ = 0;
  bool lacks_memory_ = false;  // something waits in its queue for memory
  uint32_t inbound_box_count_ = 0;
  std::atomic<uint32_t> returning_count_{0};     // boxes that peers want back from us
  std::unique_ptr<InboundBox[]> inbound_boxes_;  // as many as it may give away
  std::unique_ptr<std::byte[]> copied_out_;
  uint32_t polls_ = 0;
  // Released, and given back at the next poll: a store to the lender's line would hold up what this
  // shard sends right after it. Not where there are threads.
  uint32_t released_count_ = 0;
  Return released_[kReleasedCountMax];

  // A change of membership is acknowledged when the FIFO was read up to here.
  uint64_t drain_until_ = 0;
  uint64_t epoch_to_acknowledge_ = 0;
  // Slots before this one that are claimed and not published are passed over from then on.
  uint64_t overdue_until_ = 0;
  uint64_t overdue_at_ns_ = 0;
  uint32_t claim_polls_ = 0;                      // that found a claim in the way
  std::unique_ptr<KnownMember[]> known_members_;  // as of seen_epoch_
  std::unique_ptr<uint64_t[]> leaving_;           // bits: those that died and were not told of yet
  std::unique_ptr<uint64_t[]> buried_;  // bits: those that died, all of which was delivered

  // What is sent.
  std::unique_ptr<EndpointTable> endpoints_;
  SpinLock lock_;  // of what all endpoints share:
  EagerRegion eager_;
  uint64_t eager_reserve_bytes_ = 0;
  LoanTable loans_;
  PeerShare loan_share_;
  std::atomic<uint32_t> operation_count_{0};
  uint64_t operation_number_ = 0;
  Operation operations_[kOperationCountMax];
  PeerShare operation_share_;
  Exposure exposures_[kExposureCountMax];
  SingleCopy* single_copy_ = nullptr;
  LogLimit cut_off_lines_{16};  // a group's: strangers have each one of their own
  bool single_copy_was_reported_ = false;

  PeerEventHandler on_peer_;
  bool has_told_ = false;  // since the last poll
  ShmCounters own_counters_;
  ShmCounters* counters_ = &own_counters_;
};

}  // namespace bedplate
