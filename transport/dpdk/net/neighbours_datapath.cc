#include "transport/dpdk/net/neighbours_datapath.h"

#include <algorithm>

#include <rte_jhash.h>

#include "platform/assert.h"

namespace bedplate {

using State = Neighbour::State;

uint32_t& Neighbours::chain_of(const IpAddress& address) const noexcept {
  const uint32_t hash =
      rte_jhash(address.bytes, address.byte_count(), static_cast<uint32_t>(address.family));
  return chains_[hash & chain_mask_];
}

const Neighbour* Neighbours::find(const IpAddress& address) const noexcept {
  for (uint32_t at = chain_of(address); at != kNone; at = entries_[at].next) {
    if (is_same(entries_[at].address, address)) return &entries_[at];
  }
  return nullptr;
}

void Neighbours::arm(Neighbour& entry, uint64_t deadline_ns) noexcept {
  BP_DCHECK(is_timed(entry));
  entry.deadline_ns = deadline_ns;
  next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
}

void Neighbours::unlink(Neighbour& entry) noexcept {
  BP_ASSERT(entry.state != State::kUnused && entry.waiting_count == 0);
  uint32_t* at = &chain_of(entry.address);
  while (&entries_[*at] != &entry) {
    at = &entries_[*at].next;
    BP_ASSERT(*at < count_max_ && "it is in the chain of its address");
  }
  *at = entry.next;
  entry.state = State::kUnused;
}

// Frees the entry before it tells the owners of its frames, because they may send.
void Neighbours::give_up(Neighbour& entry) noexcept {
  BP_ASSERT(entry.asked_count == kAskedMax);
  uint32_t count = 0;
  waiting_.take_of(index_of(entry), [&](rte_mbuf* frame) { given_up_[count++] = frame; });
  BP_ASSERT(count == entry.waiting_count);
  entry.waiting_count = 0;
  unlink(entry);
  for (uint32_t i = 0; i < count; ++i) asker_.drop_waiting(given_up_[i], true);
}

// Returns an unused entry, or the least recently used of some stale or incomplete ones. Returns
// nullptr if it may take none of all entries.
Neighbour* Neighbours::take_entry(uint64_t now_ns) noexcept {
  Neighbour* victim = nullptr;
  for (uint32_t i = 0; i < count_max_ && (i < kLookedAtCount || victim == nullptr); ++i) {
    Neighbour& entry = entries_[hand_];
    hand_ = hand_ + 1 == count_max_ ? 0 : hand_ + 1;
    if (entry.state == State::kUnused) return &entry;
    const bool is_stale = entry.state == State::kStale ||
                          (entry.state == State::kReachable && now_ns >= entry.deadline_ns);
    if (!is_stale && entry.state != State::kIncomplete) continue;
    if (victim == nullptr || entry.used_ns < victim->used_ns) victim = &entry;
  }
  if (victim != nullptr) {
    // The owners of these frames are not told: an owner may send when it is told, and re-enter
    // this.
    waiting_.take_of(index_of(*victim),
                     [&](rte_mbuf* frame) { asker_.drop_waiting(frame, false); });
    victim->waiting_count = 0;
    unlink(*victim);
  }
  return victim;
}

Neighbour* Neighbours::use(const IpAddress& address, uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(address.family != 0);
  Neighbour* entry = find_entry(address);
  if (entry == nullptr) {
    entry = take_entry(now_ns);
    if (entry == nullptr) return nullptr;
    *entry = {};
    entry->address = address;
    entry->state = State::kIncomplete;
    uint32_t& chain = chain_of(address);
    entry->next = chain;
    chain = index_of(*entry);
    entry->asked_count = 1;
    arm(*entry, now_ns + kRetransmitNs);
    asker_.ask(address, nullptr);
  }
  entry->used_ns = now_ns;
  if (entry->state == State::kReachable && now_ns >= entry->deadline_ns) {
    entry->state = State::kStale;
  }
  if (entry->state == State::kStale) {
    entry->state = State::kDelay;
    arm(*entry, now_ns + kDelayNs);
  }
  return entry;
}

void Neighbours::wait(Neighbour& neighbour, rte_mbuf* frame) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(neighbour.state == State::kIncomplete);
  const WaitingFrames::Waiting pushed_out = waiting_.push(index_of(neighbour), frame);
  ++neighbour.waiting_count;
  if (pushed_out.frame == nullptr) return;
  BP_ASSERT(entries_[pushed_out.neighbour].waiting_count > 0);
  --entries_[pushed_out.neighbour].waiting_count;
  asker_.drop_waiting(pushed_out.frame, false);
}

bool Neighbours::is_asked(const IpAddress& address) const noexcept {
  const Neighbour* entry = find(address);
  return entry != nullptr && (entry->state == State::kIncomplete || entry->state == State::kProbe);
}

// RFC 4861, 7.2.5 and appendix C.
bool Neighbours::learn(const IpAddress& address, const rte_ether_addr& mac,
                       const Evidence& evidence, uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  Neighbour* entry = find_entry(address);
  if (entry == nullptr) return false;
  const bool was_incomplete = entry->state == State::kIncomplete;
  const bool is_other = !was_incomplete && !rte_is_same_ether_addr(&entry->mac, &mac);
  if (is_other && !evidence.is_override) {
    if (entry->state == State::kReachable) entry->state = State::kStale;
    return true;
  }
  entry->mac = mac;
  if (evidence.is_solicited) {
    entry->state = State::kReachable;
    entry->deadline_ns = now_ns + kReachableNs;
  } else if (was_incomplete || is_other) {
    entry->state = State::kStale;
  }
  if (!was_incomplete) return true;
  BP_DCHECK(entry->has_mac() && "what waited is sent to it");
  entry->waiting_count = 0;
  waiting_.take_of(index_of(*entry),
                   [&](rte_mbuf* frame) { asker_.send_waiting(frame, entry->mac); });
  return true;
}

void Neighbours::ask_again(Neighbour& entry, uint64_t now_ns) noexcept {
  if (entry.state == State::kDelay) {
    entry.state = State::kProbe;
    entry.asked_count = 0;
  }
  if (entry.asked_count < kAskedMax) {
    ++entry.asked_count;
    arm(entry, now_ns + kRetransmitNs);
    asker_.ask(entry.address, entry.state == State::kProbe ? &entry.mac : nullptr);
  } else {
    give_up(entry);
  }
}

void Neighbours::advance(uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  if (now_ns < next_deadline_ns_) return;
  // The owners that are told may send, which checks the invariants: so the old deadline stays for
  // now.
  for (uint32_t i = 0; i < count_max_; ++i) {
    if (is_timed(entries_[i]) && entries_[i].deadline_ns <= now_ns) ask_again(entries_[i], now_ns);
  }
  next_deadline_ns_ = kNever;
  for (uint32_t i = 0; i < count_max_; ++i) {
    if (is_timed(entries_[i])) arm(entries_[i], entries_[i].deadline_ns);
  }
  BP_DCHECK(next_deadline_ns_ > now_ns);
}

}  // namespace bedplate
