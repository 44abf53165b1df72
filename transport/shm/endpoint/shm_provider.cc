#include "transport/shm/endpoint/shm_provider.h"

#include <algorithm>
#include <cstring>

#include "pinned_pool/boot_segment.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/product.h"

namespace bedplate {

ShmProvider::~ShmProvider() = default;

Result<void> ShmProvider::create(const ShmProviderOptions& options, const Dispatcher& dispatcher) {
  BP_ASSERT(wrapper_ == nullptr);
  const GroupShape& shape = options.segment.shape();
  if (options.segment.fence() == BellFence::kSleeper) BP_TRY(join_bell_fence());
  OutgoingParts& outgoing = parts_.outgoing;
  outgoing.group = GroupView({.segment = options.segment,
                              .members = options.members,
                              .pool = options.pool != nullptr ? options.pool : &process_pool(),
                              .doorbells = options.doorbells,
                              .self = options.member});
  if (options.single_copy != nullptr) {
    auto card = options.single_copy->card();
    if (!card.ok()) return card.error();
    segment().card(member()) = card.value();
  }
  bell_ = group().bell_of(member());
  wrapper_ = &segment().wrapper(member());
  is_locked_ = options.is_locked;
  on_peer_ = options.on_peer;
  if (options.counters != nullptr) counters_ = options.counters;

  const GroupTraits traits = group().traits();
  outgoing.am_bytes_max = traits.has_eager_region
                              ? shape.eager_bytes
                              : std::min(shape.eager_bytes, FastBox::area_bytes(shape.box_bytes));
  outgoing.stock.create(group());
  parts_.name = options.name;
  parts_.limits = {outgoing.am_bytes_max, kInlineBytesMax, kLoanHeaderBytesMax};
  parts_.single_copy = options.single_copy;
  parts_.lender.create(group());
  parts_.operations.create(outgoing);
  parts_.exposures.create(group(), options.single_copy);
  view_.create(group());
  endpoints_.create(parts_, view_);
  borrower_.create({group(), endpoints_, *this, options.is_locked});
  inbox_.create({group(), view_, endpoints_, dispatch_, *counters_});
  dispatch_.create({parts_, endpoints_, view_, borrower_, dispatcher, *counters_, inbox_.boxes()});
  // Makes the endpoints now, not at a peer's first message, since the peers are not trusted.
  for (uint32_t peer = 0; !traits.has_trust && peer < group().member_count(); ++peer) {
    if (group().is_peer(peer)) BP_ASSERT(endpoints_.try_add(peer) != nullptr);
  }
  follow_members();
  return {};
}

// Returns the peer's number, which may be outside the group; for a name, the number of the first
// living member with that name.
Result<uint32_t> ShmProvider::find_peer(const PeerAddress& peer) const noexcept {
  if (peer.member != UINT32_MAX || peer.name == nullptr) return peer.member;
  for (uint32_t member = 0; member < group().member_count(); ++member) {
    if (group().is_alive(member) &&
        std::strcmp(group().members().name(member).text, peer.name) == 0) {
      return member;
    }
  }
  return error_while("connecting to %s", peer.name)
      .set_answer("no living member has this name")
      .set_cure("list the members with `%s stats`, or wait until it has joined "
                "(PeerEventKind::kJoined)",
                product().name);
}

bool ShmProvider::can_connect(uint32_t peer, Error& error) const noexcept {
  const uint32_t count = group().member_count();
  error.set_doing("connecting to member %u", peer);
  if (view_.is_dead()) {
    error.set_answer("this member has left, or the owner of the pool has cut it off");
    error.set_cure("end this process, and see the owner's log for the reason");
  } else if (view_.is_pool_gone() || group().members().is_owner_gone()) {
    error.set_answer("the owner of the pool has died or stopped");
    error.set_cure("end this process, and join the new pool when the owner runs again");
  } else if (peer >= count) {
    error.set_answer("the group has %u members", count);
    error.set_cure("members are 0..%u", count - 1);
  } else if (peer == member()) {
    error.set_answer("that is this member itself");
    error.set_cure("use the provider self");
  } else if (const MemberWord word = group().members().word(peer);
             word.state != MemberState::kAlive) {
    error.set_answer("its slot is %s", to_text(word.state));
    error.set_cure("wait until it has joined (PeerEventKind::kJoined)");
  } else {
    return true;
  }
  return false;
}

Result<Endpoint*> ShmProvider::connect(const PeerAddress& wanted) {
  BP_DREQUIRE_THREAD(is_own_thread(), "Messenger::connect");
  auto found = find_peer(wanted);
  if (!found.ok()) return found.error();
  const uint32_t peer = found.value();
  Error error;
  if (!can_connect(peer, error)) return error;
  ShmEndpoint* endpoint = endpoints_.try_make(peer);
  if (endpoint == nullptr) {
    error.set_answer("there is no memory for an endpoint");
    return error.set_cure("free some, or give the heap more: `%s stats` shows who uses it",
                          product().name);
  }
  if (endpoint->incoming().is_cut_off()) {
    error.set_answer("it was cut off: it wrote invalid data");
    return error.set_cure("end that process, and see the log for what it wrote");
  }
  if (segment().has_cut_off(peer, member())) {
    error.set_answer("it has cut this member off: this process wrote invalid data");
    return error.set_cure("end this process, and see the peer's log for what it found");
  }
  return endpoint;
}

// Sleeps in slices: a thread that waits on its own bell is not woken by a change of the owner's
// word.
void ShmProvider::sleep(uint64_t timeout_ns) noexcept {
  BP_DCHECK(is_own_thread());
  const uint64_t begin_ns = monotonic_ns();
  uint64_t left_ns = timeout_ns;
  while (!bell_.sleep(std::min(left_ns, kOwnerCheckNs))) {
    if (group().members().is_owner_gone() && !view_.is_pool_gone()) return;
    if (timeout_ns == UINT64_MAX) continue;
    const uint64_t slept_ns = monotonic_ns() - begin_ns;
    if (slept_ns >= timeout_ns) return;
    left_ns = timeout_ns - slept_ns;
  }
}

void ShmProvider::settle_returns() noexcept {
  endpoints_.for_each([](ShmEndpoint& endpoint) noexcept {
    if (endpoint.path().must_return_box()) endpoint.path().settle();
  });
}

bool ShmProvider::is_valid() const noexcept {
  uint32_t returning_count = 0;
  bool has_open = false;
  endpoints_.for_each([&](const ShmEndpoint& endpoint) noexcept {
    if (endpoint.path().must_return_box()) ++returning_count;
    if (endpoint.path().is_open()) has_open = true;
  });
  return returning_count == parts_.outgoing.returning_count && !(has_open && view_.is_pool_gone());
}

// Logs here, not in the datapath, which must not.
void ShmProvider::report() noexcept {
  const MembersTable& members = group().members();
  if (const Error* error = endpoints_.take_copy_error(); error != nullptr) {
    log_error(*error);
    BP_LOG_INFO("private memory of members is copied through the pool instead");
  }
  if (const uint32_t waiter = dispatch_.take_waiter(); waiter != UINT32_MAX) {
    BP_LOG_WARNING("receiving from member %u (%s): there is no memory for its endpoint, so its "
                   "messages wait, and those behind them; free some, or give the heap more",
                   waiter, members.name(waiter).text);
  }
  while (const ShmEndpoint* endpoint = dispatch_.take_cut_off()) {
    if (!cut_off_lines_.try_pass("members that are cut off")) continue;
    BP_LOG_WARNING("member %u (%s, process %u) is cut off: it wrote %s", endpoint->peer(),
                   members.name(endpoint->peer()).text, members.pid(endpoint->peer()),
                   endpoint->incoming().nonsense);
  }
}

}  // namespace bedplate
