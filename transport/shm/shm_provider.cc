#include "transport/shm/shm_provider.h"

#include <algorithm>
#include <cstring>

#include "alloc/pool_heap.h"
#include "pinned_pool/boot_segment.h"
#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {

ShmProvider::~ShmProvider() = default;

Result<void> ShmProvider::create(const ShmProviderOptions& options, const Dispatcher& dispatcher) {
  BP_ASSERT(members_ == nullptr);
  name_ = options.name;
  doorbells_ = options.doorbells;
  segment_ = options.segment;
  const GroupShape& shape = segment_.shape();
  BP_ASSERT(options.member < shape.member_count);
  BP_ASSERT(options.members->member_count() >= shape.member_count);
  if (segment_.fence() == BellFence::kSleeper) BP_TRY(join_bell_fence());
  members_ = options.members;
  dispatcher_ = &dispatcher;
  pool_ = options.pool != nullptr ? options.pool : &process_pool();
  self_ = options.member;
  is_threaded_ = options.is_threaded;
  on_peer_ = options.on_peer;
  single_copy_ = options.single_copy;
  if (single_copy_ != nullptr) {
    auto card = single_copy_->card();
    if (!card.ok()) return card.error();
    segment_.card(self_) = card.value();
  }
  if (options.counters != nullptr) counters_ = options.counters;
  kind_ = shape.kind;
  bell_ = bell_of(self_);
  wrapper_ = &segment_.wrapper(self_);
  limits_ = {shape.eager_bytes, kInlineBytesMax, kLoanHeaderBytesMax};
  known_members_ = std::make_unique<KnownMember[]>(shape.member_count);
  leaving_ = std::make_unique<uint64_t[]>(shape.member_count / 64 + 1);
  buried_ = std::make_unique<uint64_t[]>(shape.member_count / 64 + 1);
  endpoints_ = std::make_unique<EndpointTable>();
  if (kind_ != GroupKind::kMesh) {
    const uint32_t boxes = kind_ == GroupKind::kLazy ? shape.box_count_max : 1;
    inbound_boxes_ = std::make_unique<InboundBox[]>(boxes);
  }
  loans_.create(segment_.returned_loans(self_));
  operation_share_ = PeerShare(shape.member_count, kOperationCountMax, kOperationReserveCount);
  loan_share_ = PeerShare(shape.member_count, shape.loan_count, shape.loan_count / 8);
  if (kind_ == GroupKind::kLazy) fifo_ = segment_.fifo(self_);
  if (kind_ != GroupKind::kExchange) {
    // The reserve has room for a message of any length, and for the record of a put or get of as
    // much with the word that announces it in a mesh; or it is half of it all.
    const std::span<std::byte> region = segment_.eager_region(self_);
    eager_reserve_bytes_ =
        std::min(align_up(shape.eager_bytes, kCacheLineBytes) + 2 * kCacheLineBytes,
                 region.size() / 2 / kCacheLineBytes * kCacheLineBytes);
    eager_ = EagerRegion(region, shape.member_count, eager_reserve_bytes_);
  } else {
    limits_.am_bytes_max = std::min(shape.eager_bytes, FastBox::area_bytes(shape.box_bytes));
    copied_out_ = std::make_unique<std::byte[]>(kMessageBytesMax + 1);
    BP_ASSERT(endpoints_->try_add(*this, 1 - self_) != nullptr);  // not when it is first heard
  }
  follow_members();
  return {};
}

FutexBell ShmProvider::bell_of(uint32_t member) const noexcept {
  FutexBell bell = segment_.bell(member);
  if (!doorbells_.empty()) bell.wake_by(*doorbells_[member]);
  return bell;
}

// Its place, which may be none of the group's; of a name, that of the first living member.
Result<uint32_t> ShmProvider::find_peer(const PeerAddress& peer) const noexcept {
  if (peer.member != UINT32_MAX || peer.name == nullptr) return peer.member;
  for (uint32_t member = 0; member < segment_.shape().member_count; ++member) {
    if (is_alive(member) && std::strcmp(members_->name(member).text, peer.name) == 0) {
      return member;
    }
  }
  Error error;
  error.set_doing("connecting to %s", peer.name);
  error.set_answer("no living member has this name");
  return error.set_cure("see who is there with `bedplate stats`, or wait until it has joined "
                        "(PeerEventKind::kJoined)");
}

Result<Endpoint*> ShmProvider::connect(const PeerAddress& wanted) {
  auto found = find_peer(wanted);
  if (!found.ok()) return found.error();
  const PeerAddress peer = {found.value(), wanted.name};
  const uint32_t count = segment_.shape().member_count;
  Error error;
  error.set_doing("connecting to member %u", peer.member);
  if (is_dead_) {
    error.set_answer("this member has left, or the owner of the pool has cut it off");
    return error.set_cure("end this process, and see the owner's log for the reason");
  }
  if (is_pool_gone_ || members_->is_owner_gone()) {
    error.set_answer("the owner of the pool has died or stopped");
    return error.set_cure("end, and join the new pool when the owner is there again");
  }
  if (peer.member >= count) {
    error.set_answer("the group has %u members", count);
    return error.set_cure("members are 0..%u", count - 1);
  }
  if (peer.member == self_) {
    error.set_answer("that is this member itself");
    return error.set_cure("use the provider self");
  }
  const MemberWord word = members_->word(peer.member);
  if (word.state != MemberState::kAlive) {
    error.set_answer("its place is %s", to_text(word.state));
    return error.set_cure("wait until it has joined (PeerEventKind::kJoined)");
  }
  ShmEndpoint* endpoint = try_make_endpoint(peer.member);
  if (endpoint == nullptr) {
    error.set_answer("there is no memory for an endpoint");
    return error.set_cure("free some, or give the heap more: `bedplate stats` says who has it");
  }
  if (endpoint->is_cut_off_) {
    error.set_answer("it was cut off: what it wrote made no sense");
    return error.set_cure("end that process, and see the log for what it wrote");
  }
  if (segment_.has_cut_off(peer.member, self_)) {
    error.set_answer("it has cut this member off: what this process wrote made no sense to it");
    return error.set_cure("end this process, and see the log of that one for what it found");
  }
  return endpoint;
}

ShmEndpoint* ShmProvider::try_make_endpoint(uint32_t member) noexcept {
  ShmEndpoint* endpoint = endpoints_->at(member);
  if (endpoint == nullptr) endpoint = endpoints_->try_add(*this, member);
  if (endpoint == nullptr) return nullptr;
  const uint64_t generation = members_->generation(member);
  if (endpoint->generation_ != generation) {
    const SpinGuard guard(endpoint->lock_, is_threaded_);
    endpoint->open(generation);
  }
  return endpoint;
}

ShmEndpoint* ShmProvider::sender_of(uint32_t member) noexcept {
  if (!is_peer(member)) return nullptr;
  ShmEndpoint* endpoint = endpoints_->at(member);
  // The table's generation, not the one that we know of: a place is given out anew only when we
  // have read all of its former member, and the new one may write before we look again.
  if (endpoint != nullptr && endpoint->generation_ == members_->generation(member)) {
    return endpoint;
  }
  // The first that is heard from it. It may be dead already: what it had sent counts.
  const MemberState state = members_->state(member);
  if (state == MemberState::kFree || state == MemberState::kJoining || is_buried(member)) {
    return nullptr;
  }
  ShmEndpoint* made = try_make_endpoint(member);
  if (made == nullptr) wait_for_memory(member);
  return made;
}

// In pieces: the word of the owner's life wakes nobody that waits for another.
void ShmProvider::sleep(uint64_t timeout_ns) noexcept {
  const uint64_t begin_ns = monotonic_ns();
  uint64_t left_ns = timeout_ns;
  while (!bell_.sleep(std::min(left_ns, kOwnerCheckNs))) {
    if (members_->is_owner_gone() && !is_pool_gone_) return;
    if (timeout_ns == UINT64_MAX) continue;
    const uint64_t slept_ns = monotonic_ns() - begin_ns;
    if (slept_ns >= timeout_ns) return;
    left_ns = timeout_ns - slept_ns;
  }
}

void ShmProvider::wait_for_memory(uint32_t member) noexcept {
  if (counters_->memory_waits.read() == 0) {
    BP_LOG_WARNING("receiving from member %u (%s): there is no memory for its endpoint, so what it "
                   "has sent waits, and what is behind that; free some, or give the heap more",
                   member, members_->name(member).text);
  }
  counters_->memory_waits.add(1);
  lacks_memory_ = true;
}

const Segment* ShmProvider::shared_segment(const void* memory, uint64_t bytes) const noexcept {
  const Segment* segment = pool_->segment_of(memory);
  if (segment == nullptr) return nullptr;
  // Each process has a segment 0 of its own, at the same address. (With doorbells, all members are
  // of this process.)
  const bool is_own = pool_ == &process_pool() && segment == &pool_->segment(0);
  if (is_own && doorbells_.empty()) return nullptr;
  const auto offset =
      static_cast<uint64_t>(static_cast<const std::byte*>(memory) - segment->address);
  return bytes <= segment->bytes - offset ? segment : nullptr;
}

// ---- What all endpoints share ----

EagerRegion::Piece ShmProvider::take_eager(ShmEndpoint& endpoint, uint64_t bytes) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  const EagerRegion::Piece piece = eager_.try_take(bytes, endpoint.peer_);
  if (piece.memory != nullptr) return piece;
  eager_.reclaim([&](const EagerRegion::Use& use) {
    ShmEndpoint* user = endpoints_->at(use.member);
    if (user == &endpoint || !is_threaded_) return user->is_consumed(use);
    // Another thread may be using it, and waiting for our lock.
    if (!user->lock_.try_lock()) return false;
    const bool is_consumed = user->is_consumed(use);
    user->lock_.unlock();
    return is_consumed;
  });
  return eager_.try_take(bytes, endpoint.peer_);
}

void ShmProvider::use_eager(const EagerRegion::Piece& piece, const EagerRegion::Use& use) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  eager_.set_use(piece, use);
}

void ShmProvider::hold_eager(const EagerRegion::Piece& piece, uint32_t member) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  eager_.hold(piece, member);
}

void ShmProvider::cancel_eager(const EagerRegion::Piece& piece) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  eager_.cancel(piece);
}

void ShmProvider::forget_eager(uint32_t member) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  eager_.reclaim([&](const EagerRegion::Use& use) { return use.member == member; });
}

LoanTable::Lent ShmProvider::lend(std::byte* block, Completion* returned,
                                  uint32_t member) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  if (!loan_share_.may_take(member)) return {};
  loan_share_.take(member);
  return loans_.try_lend(block, returned, member);
}

bool ShmProvider::answers_no_more(uint32_t member, uint64_t generation) const noexcept {
  const MemberWord word = members_->word(member);
  return word.generation != generation || word.state == MemberState::kQuiet ||
         word.state == MemberState::kFree || segment_.writes_no_more(member) ||
         segment_.has_cut_off(member, self_);
}

void ShmProvider::cancel_loan(uint32_t loan, uint32_t member) noexcept {
  const SpinGuard guard(lock_, is_threaded_);
  loan_share_.give_back(member);
  loans_.cancel(loan);
}

void ShmProvider::finish_loan(const LoanTable::Record& record, Outcome outcome) noexcept {
  if (record.returned != nullptr) {
    record.returned->call(*record.returned, outcome);
  } else {
    pool_free(record.block);
  }
}

// ---- Endpoints, but for their data path ----

ShmEndpoint::ShmEndpoint(ShmProvider& provider, uint32_t peer) noexcept
    : provider_(provider), peer_(peer), bell_(provider.bell_of(peer)) {
  const GroupSegment& segment = provider_.segment_;
  if (provider_.kind_ == GroupKind::kLazy) fifo_ = segment.fifo(peer_);
  if (provider_.kind_ == GroupKind::kMesh) lane_ = segment.lane(peer_, provider_.self_);
  if (provider_.kind_ == GroupKind::kExchange) box_ = std::make_unique<FastBoxProducer>();
}

void ShmEndpoint::close() noexcept {
  is_open_ = false;
  if (!must_return_box_) return;
  must_return_box_ = false;
  provider_.returning_count_.fetch_sub(1, std::memory_order_relaxed);
}

void ShmEndpoint::open(uint64_t generation) noexcept {
  close();
  provider_.forget_eager(peer_);
  generation_ = generation;
  is_open_ = provider_.is_alive(peer_) && !provider_.is_pool_gone_;
  is_cut_off_ = is_ignored_ = false;
  bell_ = provider_.bell_of(peer_);
  box_index_ = kNoBox;
  box_uses_ = 0;
  known_tail_ = next_fifo_index_ = 0;
  lane_head_ = known_lane_tail_ = inbound_lane_tail_ = 0;
  heard_ = held_loans_ = 0;
  gave_box_ = false;
  memory_state_ = MemoryState::kUntried;
  memory_.reset();
  queue_ = provider_.kind_ == GroupKind::kMesh ? Queue::kLane : Queue::kFifo;
  if (provider_.kind_ == GroupKind::kExchange) {
    queue_ = Queue::kBox;
    *box_ = FastBoxProducer(provider_.segment_.inbound_box(peer_));
  }
}

const EndpointLimits& ShmEndpoint::limits() const noexcept { return provider_.limits_; }
const char* ShmEndpoint::provider_name() const noexcept { return provider_.name(); }

}  // namespace bedplate
