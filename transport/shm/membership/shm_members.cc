// One member's handling of the others: they join, die, are forgotten, and are cut off.
//
// A death is handled in this order: deliver the dead member's published messages, take its boxes
// back, report it to the handler of peer events, acknowledge the change. After that the owner may
// give its number to another. Loans to it come back when it is quiet.
#include "platform/log.h"
#include "transport/shm/endpoint/shm_provider.h"

namespace bedplate {

void ShmProvider::follow_members() noexcept {
  const uint64_t epoch = group().members().epoch();
  if (epoch != view_.seen_epoch()) {
    view_.set_complete(look_at_members());
    // A death is acknowledged once everything that the dead member may have written was read.
    if (view_.is_complete()) {
      inbox_.mark_drain();
      view_.see(epoch);
    }
  }
  if (group().members().is_owner_gone()) stop_sending();
}

void ShmProvider::stop_sending() noexcept {
  if (view_.is_pool_gone()) return;
  view_.lose_pool();
  endpoints_.for_each([](ShmEndpoint& endpoint) noexcept { endpoint.path().close(); });
  tell(PeerEventKind::kPoolGone, 0, 0);
}

// The others hold this process for dead: it left, or the owner cut it off. From here on it stores
// nothing into the segment, and says so, so that nobody waits for it any more.
void ShmProvider::die() noexcept {
  stop_sending();
  borrower_.stop();
  view_.die();
  // Ends this member's operations and loans: nobody answers them any more.
  while (parts_.operations.poll() > 0) {
  }
  for (uint32_t peer = 0; peer < group().member_count(); ++peer) parts_.lender.collect_from(peer);
  wrapper_->acknowledged_epoch.store(kWritesNoMore, std::memory_order_release);
}

bool ShmProvider::look_at_members() noexcept {
  for (uint32_t member = 0; member < group().member_count(); ++member) {
    const MemberWord now = group().members().word(member);
    const KnownMember before = view_.known(member);
    if (KnownMember::of(now) == before) continue;
    if (!member_changed(member, before, now)) return false;
    view_.set_known(member, KnownMember::of(now));
    if (view_.is_dead()) return true;  // it stores nothing into the segment any more
  }
  return true;
}

bool ShmProvider::member_changed(uint32_t member, KnownMember before,
                                 const MemberWord& now) noexcept {
  if (now.state == MemberState::kFree) return true;  // the number is free
  const KnownMember now_known = KnownMember::of(now);
  if (member == group().self()) {
    if (now_known.is_dead()) die();
    return true;
  }
  const bool is_new = view_.is_new(member, now_known);
  if (is_new) {
    view_.set_buried(member, false);
    inbox_.welcome(member);
  }
  if (now_known.is_dead() && (is_new || !before.is_dead()) &&
      !deal_with_death(member, before, now.generation)) {
    return false;
  }
  if (now.state == MemberState::kAlive && (is_new || before.state() != MemberState::kAlive)) {
    tell(PeerEventKind::kJoined, member, now.generation);
  }
  if (now.state == MemberState::kQuiet) {
    inbox_.forget_writer(member);
    parts_.lender.collect_from(member);
  }
  return true;
}

bool ShmProvider::deal_with_death(uint32_t member, KnownMember before,
                                  uint64_t generation) noexcept {
  inbox_.drain(member);
  if (dispatch_.lacks_memory()) return false;
  // The member may have joined, been connected to or heard, and died, all since the last look.
  ShmEndpoint* endpoint = endpoints_.at(member);
  const bool is_known = endpoint != nullptr && endpoint->generation() == generation;
  if (is_known || before.state() == MemberState::kAlive) view_.set_leaving(member);
  if (endpoint == nullptr) return true;
  endpoint->path().close();
  return true;
}

// All its messages were delivered. If it still runs, its further messages are ignored.
void ShmProvider::bury(uint32_t member) noexcept {
  view_.set_buried(member, true);
  ShmEndpoint* endpoint = endpoints_.at(member);
  if (endpoint == nullptr) return;
  const MemberWord heard = {endpoint->generation(), MemberState::kDead};
  // Its number may have been given out meanwhile, and the endpoint may be the new member's.
  if (KnownMember::of(heard).is_generation_of(view_.known(member))) {
    endpoint->incoming().is_ignored = true;
  }
}

void ShmProvider::acknowledge_if_drained() noexcept {
  if (view_.is_dead() || !inbox_.is_drained()) return;
  for (uint32_t member = 0; view_.is_complete() && member < group().member_count(); ++member) {
    if (view_.known(member).is_dead()) bury(member);
  }
  view_.take_leaving([&](uint32_t member) noexcept {
    tell(PeerEventKind::kLeft, member, group().members().generation(member));
  });
  // Release: this member does not access the parts of the members that were dead then any more.
  wrapper_->acknowledged_epoch.store(view_.epoch_to_acknowledge(), std::memory_order_release);
  view_.acknowledged();
}

// Finds the peers that this member talked to and that have cut it off.
void ShmProvider::look_for_cut_offs() noexcept {
  seen_notices_ = wrapper_->notices.load(std::memory_order_acquire);
  endpoints_.for_each([&](ShmEndpoint& endpoint) noexcept {
    const uint32_t peer = endpoint.peer();
    if (!segment().has_cut_off(peer, member())) return;
    if (!endpoint.path().is_open()) return;
    endpoint.path().close();
    BP_LOG_WARNING("member %u (%s, process %u) has cut this member (%u) off: this process wrote "
                   "invalid data; see the log of that one",
                   peer, group().members().name(peer).text, group().members().pid(peer), member());
    tell(PeerEventKind::kCutOff, peer, endpoint.generation());
  });
}

void ShmProvider::tell(PeerEventKind kind, uint32_t member, uint64_t generation) noexcept {
  has_told_ = true;
  if (on_peer_.function == nullptr) return;
  on_peer_.function(on_peer_.context, {kind, member, generation});
}

}  // namespace bedplate
