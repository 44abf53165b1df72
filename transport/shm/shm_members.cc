// What one member sees of the others: they join, die, are forgotten, and are cut off.
//
// A death is dealt with in this order: what the dead one had published is delivered, its boxes go
// back, whoever wants to know is told, and the change is acknowledged, after which the owner may
// give its place to another. What was lent to it comes back when it is quiet.
#include <algorithm>
#include <bit>
#include <iterator>

#include "platform/clock.h"
#include "platform/log.h"
#include "transport/shm/shm_provider.h"

namespace bedplate {

void ShmProvider::follow_members() noexcept {
  const uint64_t epoch = members_->epoch();
  if (epoch != seen_epoch_) has_looked_ = look_at_members();
  if (epoch != seen_epoch_ && has_looked_) {
    // Deaths are acknowledged when the FIFO was read beyond every slot that the dead may have
    // taken: slots are taken one after the other, so up to the first that nobody has.
    if (kind_ == GroupKind::kLazy) drain_until_ = first_unclaimed();
    seen_epoch_ = epoch;
    epoch_to_acknowledge_ = epoch;
  }
  if (members_->is_owner_gone()) stop_sending();
}

void ShmProvider::stop_sending() noexcept {
  if (is_pool_gone_) return;
  is_pool_gone_ = true;
  for (uint32_t member = 0; member < segment_.shape().member_count; ++member) {
    if (ShmEndpoint* endpoint = endpoints_->at(member); endpoint != nullptr) {
      const SpinGuard guard(endpoint->lock_, is_threaded_);
      endpoint->close();
    }
  }
  tell(PeerEventKind::kPoolGone, 0, 0);
}

// The others hold this process for dead: it left, or the owner cut it off. From here on it stores
// nothing into the segment, and says so: nobody waits for it any more.
void ShmProvider::die() noexcept {
  stop_sending();
  {
    const SpinGuard guard(lock_, is_threaded_);  // loans that are given back meanwhile
    is_dead_ = true;
  }
  // What this member has begun ends: nobody answers it any more.
  while (poll_operations() > 0) {
  }
  for (uint32_t member = 0; member < segment_.shape().member_count; ++member) {
    return_loans_of(member);
  }
  wrapper_->acknowledged_epoch.store(kWritesNoMore, std::memory_order_release);
}

bool ShmProvider::look_at_members() noexcept {
  for (uint32_t member = 0; member < segment_.shape().member_count; ++member) {
    const MemberWord now = members_->word(member);
    const KnownMember before = known_members_[member];
    if (KnownMember::of(now) == before) continue;
    if (!member_changed(member, before, now)) return false;
    known_members_[member] = KnownMember::of(now);
  }
  return true;
}

bool ShmProvider::member_changed(uint32_t member, KnownMember before,
                                 const MemberWord& now) noexcept {
  if (now.state == MemberState::kFree) return true;  // nobody is there
  const bool is_dead = now.state == MemberState::kDead || now.state == MemberState::kQuiet;
  if (member == self_) {
    if (is_dead) die();
    return true;
  }
  const bool is_new =
      before.state() == MemberState::kFree || !KnownMember::of(now).is_generation_of(before);
  const uint64_t bit = uint64_t{1} << (member % 64);
  if (is_new) buried_[member / 64] &= ~bit;
  if (is_new && kind_ == GroupKind::kExchange) {
    inbound_boxes_[0] = {FastBoxConsumer(segment_.inbound_box(self_)), 0, member};
    inbound_box_count_ = 1;
  }
  const bool was_dead =
      before.state() == MemberState::kDead || before.state() == MemberState::kQuiet;
  if (is_dead && (is_new || !was_dead)) {
    if (!drain(member)) return false;
    // It may have joined, been connected to or heard, and died, all since the last look.
    ShmEndpoint* endpoint = endpoints_->at(member);
    const bool is_known = endpoint != nullptr && endpoint->generation_ == now.generation;
    if (is_known || before.state() == MemberState::kAlive) leaving_[member / 64] |= bit;
    if (endpoint != nullptr) {
      const SpinGuard guard(endpoint->lock_, is_threaded_);
      endpoint->close();
    }
  }
  if (now.state == MemberState::kAlive && (is_new || before.state() != MemberState::kAlive)) {
    tell(PeerEventKind::kJoined, member, now.generation);
  }
  if (now.state == MemberState::kQuiet) {
    if (kind_ == GroupKind::kLazy) fifo_.free_retired_of(member);
    return_loans_of(member);
  }
  return true;
}

// Everything that it had sent was delivered. If it runs all the same, what it sends is ignored.
void ShmProvider::bury(uint32_t member) noexcept {
  buried_[member / 64] |= uint64_t{1} << (member % 64);
  ShmEndpoint* endpoint = endpoints_->at(member);
  if (endpoint == nullptr) return;
  const MemberWord heard = {endpoint->generation_, MemberState::kDead};
  // Its place may have been given out meanwhile, and the new one heard.
  if (KnownMember::of(heard).is_generation_of(known_members_[member])) endpoint->is_ignored_ = true;
}

bool ShmProvider::is_buried(uint32_t member) const noexcept {
  return (buried_[member / 64] >> (member % 64) & 1) != 0 &&
         KnownMember::of(members_->word(member)).is_generation_of(known_members_[member]);
}

// What the dead one had published outside the FIFO, where it comes before or after all of that.
// Once round is all that it can have left: who only said that it left may still be writing.
bool ShmProvider::drain(uint32_t member) noexcept {
  for (uint32_t i = 0; i < inbound_box_count_; ++i) {
    if (inbound_boxes_[i].sender != member) continue;
    poll_box(inbound_boxes_[i], kFastBoxSlotCountMax);
    if (kind_ != GroupKind::kLazy) {
      inbound_box_count_ = 0;
      break;
    }
    // Where the dead one may still write to its box, that stays the pair's until its place is free.
    if (segment_.writes_no_more(member)) {
      segment_.box_owner(inbound_boxes_[i].index).store(0, std::memory_order_release);
    }
    drop_inbound_box(i--);
  }
  if (kind_ == GroupKind::kMesh) poll_lane(member, segment_.shape().entry_count);
  return !lacks_memory_;
}

uint64_t ShmProvider::first_unclaimed() const noexcept {
  SlotHeader header;
  uint64_t index = tail_;
  for (; index - tail_ < fifo_.capacity(); ++index) {
    fifo_.peek(index, &header);
    if (header.kind == SlotKind::kNone) break;
  }
  return index;
}

void ShmProvider::acknowledge_if_drained() noexcept {
  if (is_dead_ || (kind_ == GroupKind::kLazy && tail_ < drain_until_)) return;
  for (uint32_t member = 0; has_looked_ && member < segment_.shape().member_count; ++member) {
    const MemberState known = known_members_[member].state();
    if (known == MemberState::kDead || known == MemberState::kQuiet) bury(member);
  }
  for (uint32_t word = 0; word <= segment_.shape().member_count / 64; ++word) {
    for (uint64_t bits = leaving_[word]; bits != 0; bits &= bits - 1) {
      const uint32_t member = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      tell(PeerEventKind::kLeft, member, members_->generation(member));
    }
    leaving_[word] = 0;
  }
  // Release: nothing of ours touches the parts of those who were dead then any more.
  segment_.wrapper(self_).acknowledged_epoch.store(epoch_to_acknowledge_,
                                                   std::memory_order_release);
  epoch_to_acknowledge_ = 0;
}

void ShmProvider::return_loans_of(uint32_t member) noexcept {
  LoanTable::Record records[kLoanBatch];
  size_t count = 0;
  do {
    {
      const SpinGuard guard(lock_, is_threaded_);
      count = loans_.collect_from(member, records);
      for (size_t i = 0; i < count; ++i) loan_share_.give_back(member);
    }
    for (size_t i = 0; i < count; ++i) finish_loan(records[i], Outcome::kUnknown);
  } while (count == std::size(records));
}

void ShmProvider::cut_off(ShmEndpoint& peer, const char* what) noexcept {
  if (peer.is_cut_off_) return;
  {
    const SpinGuard guard(peer.lock_, is_threaded_);
    peer.is_cut_off_ = peer.is_ignored_ = true;
    peer.close();
  }
  segment_.set_cut_off(self_, peer.peer_);
  peer.bell_.ring();
  counters_->cut_off.add(1);
  if (!cut_off_lines_.try_pass("members that are cut off")) return;
  BP_LOG_WARNING("member %u (%s, process %u) is cut off: it wrote %s", peer.peer_,
                 members_->name(peer.peer_).text, members_->pid(peer.peer_), what);
}

// The peers that this member talked to, and that ignore it now.
void ShmProvider::look_for_cut_offs() noexcept {
  seen_notices_ = wrapper_->notices.load(std::memory_order_acquire);
  for (uint32_t member = 0; member < segment_.shape().member_count; ++member) {
    ShmEndpoint* endpoint = is_peer(member) ? endpoints_->at(member) : nullptr;
    if (endpoint == nullptr || !segment_.has_cut_off(member, self_)) continue;
    {
      const SpinGuard guard(endpoint->lock_, is_threaded_);
      if (!endpoint->is_open_) continue;
      endpoint->close();
    }
    BP_LOG_WARNING("member %u (%s, process %u) has cut this member (%u) off: it found nonsense in "
                   "what this process wrote; its log says what",
                   member, members_->name(member).text, members_->pid(member), self_);
    tell(PeerEventKind::kCutOff, member, endpoint->generation_);
  }
}

void ShmProvider::tell(PeerEventKind kind, uint32_t member, uint64_t generation) noexcept {
  has_told_ = true;
  if (on_peer_.function == nullptr) return;
  on_peer_.function(on_peer_.context, {kind, member, generation});
}

}  // namespace bedplate
