// The records of a handshake: which side sends which, and how each is checked (docs/verbs.md).
#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "platform/random_bytes.h"
#include "transport/verbs/connect/link_connector.h"

namespace bedplate {
namespace {

uint32_t random_packet_number() noexcept {
  uint32_t number = 0;
  const auto drawn = draw_bytes(std::as_writable_bytes(std::span(&number, 1)));
  BP_ASSERT(drawn.ok());  // it worked when the connector was made
  return number & kPacketNumberMask;
}

}  // namespace

HandshakeRecord LinkConnector::make_record(HandshakeKind kind,
                                           const VerbsLink* link) const noexcept {
  HandshakeRecord record = {};
  record.kind = static_cast<uint16_t>(kind);
  std::snprintf(record.name, sizeof record.name, "%s", options_.name.c_str());
  record.instance = options_.instance;
  record.window = options_.window;
  record.message_bytes = options_.message_bytes;
  record.flush_key = options_.flush_key;
  record.flush_address = options_.flush_address;
  record.datagram_queue = options_.datagram_queue;
  record.mtu = IBV_MTU_256;
  record.reads_max = 1;
  if (link == nullptr) return record;
  BP_DCHECK(is_own_thread() && link->is_connectors());  // else the other thread may write it
  const QueuePairAddress address = link->queue_pair.address(link->packet_number, link->mtu);
  record.known_instance = link->peer_instance;
  record.received = link->received;
  record.queue_pair = address.number;
  record.packet_number = address.packet_number;
  std::memcpy(record.gid, address.gid.raw, sizeof record.gid);
  record.lid = address.lid;
  record.mtu = static_cast<uint8_t>(address.mtu);
  record.reads_max = address.reads_max;
  record.place = link->place;
  return record;
}

// Chooses the values that the peer is told: they must not change during the handshake.
void LinkConnector::begin(VerbsLink& link) noexcept {
  BP_DCHECK(is_own_thread() && link.is_connectors());
  link.packet_number = random_packet_number();
  link.mtu = active_mtu(options_.device->context(), options_.device->port());
}

// Our connect() has ended.
void LinkConnector::say_hello(Talk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kConnecting && talk.link != nullptr);
  BP_DCHECK(is_own_thread() && talk.link->address.has_value());
  VerbsLink& link = *talk.link;
  int outcome = 0;
  socklen_t bytes = sizeof outcome;
  if (talk.fd.is_open()) getsockopt(talk.fd.number(), SOL_SOCKET, SO_ERROR, &outcome, &bytes);
  begin(link);
  HandshakeRecord hello = make_record(HandshakeKind::kHello, &link);
  if (outcome == 0 && (!send_record(talk, hello) || !watch(talk, EPOLLIN | EPOLLRDHUP))) {
    outcome = errno;
  }
  if (outcome != 0) {
    drop(talk);
    return back_off(link, strerror(outcome));
  }
  enter(talk, Stage::kAwaitWelcome);
}

void LinkConnector::take_welcome(Talk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kAwaitWelcome && talk.link != nullptr);
  BP_DCHECK(is_own_thread() && talk.link->is_connectors());
  VerbsLink& link = *talk.link;
  const HandshakeRecord record = talk.record;
  if (check_record(record, HandshakeKind::kRefusal) == Refusal::kNone) return take_refusal(talk);
  const bool is_welcome = check_record(record, HandshakeKind::kWelcome) == Refusal::kNone;
  if (is_welcome && link.name != record.name) {
    char why[64];
    std::snprintf(why, sizeof why, "it calls itself %s", record.name);
    back_off(link, why, "correct the address of this peer, or its name");
    return drop(talk);
  }
  if (!is_welcome || record.window != options_.window ||
      record.message_bytes != options_.message_bytes) {
    tell_once(talk.host, "it answers with a malformed record");
    drop(talk);
    return back_off(link, "a malformed answer", cure_of(Refusal::kMalformed));
  }
  if (record.instance == dialing(link).cut_instance) {
    drop(talk);
    return back_off(link, "it broke the rules before", "restart it");
  }
  // The shard takes messages from the moment that the queue pair can receive.
  HandshakeRecord ready = make_record(HandshakeKind::kReady, &link);
  commit(link, record, talk.host);
  enter(talk, Stage::kLifeline);
  const auto connected = connect_queue_pair(link);
  if (connected.ok() && send_record(talk, ready)) return come_up(link);
  if (connected.ok()) {
    back_off(link, "it hung up");
  } else {
    const Error& error = connected.error();
    char why[sizeof error.doing + sizeof error.answer + 2];
    std::snprintf(why, sizeof why, "%s: %s", error.doing, error.answer);
    back_off(link, why, error.cure);
  }
  break_link(link);
}

void LinkConnector::take_refusal(Talk& talk) noexcept {
  BP_DCHECK(is_own_thread() && talk.stage == Stage::kAwaitWelcome && talk.link != nullptr);
  VerbsLink& link = *talk.link;
  const auto why = static_cast<Refusal>(talk.record.refusal);
  drop(talk);
  if (why == Refusal::kCrossing) {  // its own hello is on the way
    dialing(link).next_ns = monotonic_ns() + options_.timing.answer_ns_max;
    return;
  }
  char text[128];
  std::snprintf(text, sizeof text, "it refuses: %s", to_text(why));
  back_off(link, text, cure_of(why));
}

void LinkConnector::take_hello(Talk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kAwaitHello && talk.link == nullptr);
  BP_DCHECK(is_own_thread() && talk.bytes == 0);
  const HandshakeRecord& record = talk.record;
  const Refusal fault = check_record(record, HandshakeKind::kHello);
  if (fault != Refusal::kNone) return refuse(talk, fault);
  VerbsLink* link = link_named(record.name);
  if (link == nullptr) return refuse(talk, Refusal::kNotListed);
  if (record.window != options_.window || record.message_bytes != options_.message_bytes) {
    return refuse(talk, Refusal::kShape);
  }
  if (Talk* own = talk_of(*link, false); own != nullptr) {
    // Our call goes on only once its hello is sent: one that is still connecting may never arrive.
    const bool both_said_hello = own->stage == Stage::kAwaitWelcome;
    if (both_said_hello && options_.name < link->name) return refuse(talk, Refusal::kCrossing);
    const bool is_answered = own->stage == Stage::kAwaitReady;
    drop(*own);  // a newer hello counts
    if (is_answered) break_link(*link);
  }
  talk.link = link;
  enter(talk, Stage::kHeld);
  answer_hello(talk);
}

// Answers once the link is ours: a peer that dials has lost the connection that we may still have.
void LinkConnector::answer_hello(Talk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kHeld && talk.link != nullptr);
  BP_DCHECK_SLOW(is_own_thread() && is_held_well(talk));
  VerbsLink& link = *talk.link;
  const LinkState state = link.state.load(std::memory_order_acquire);
  if (state == LinkState::kLost) return refuse(talk, Refusal::kDevice);
  if (state == LinkState::kUp) {
    // If both dialed, this may be the call that the peer gave up for ours.
    char more = 0;
    const bool is_socket = talk.fd.is_open();
    if (is_socket && recv(talk.fd.number(), &more, sizeof more, MSG_PEEK) == 0) return drop(talk);
    return break_link(link);
  }
  note_cut_off(link);
  if (talk.record.instance == dialing(link).cut_instance) return refuse(talk, Refusal::kCutOff);
  if (Talk* lifeline = talk_of(link, true); lifeline != nullptr) drop(*lifeline);
  const HandshakeRecord record = talk.record;
  begin(link);
  HandshakeRecord welcome = make_record(HandshakeKind::kWelcome, &link);
  commit(link, record, talk.host);
  enter(talk, Stage::kAwaitReady);
  const auto connected = connect_queue_pair(link);
  if (connected.ok()) {
    if (!send_record(talk, welcome)) give_up(talk, "it hung up");
    return;
  }
  if (device_errors_.try_pass()) log_error(connected.error());
  refuse(talk, Refusal::kDevice);
  break_link(link);
}

void LinkConnector::note_cut_off(const VerbsLink& link) noexcept {
  if (link.state.load(std::memory_order_acquire) == LinkState::kCutOff) {
    dialing(link).cut_instance = link.peer_instance;
  }
}

void LinkConnector::refuse(Talk& talk, Refusal why) noexcept {
  BP_DCHECK(is_own_thread() && why != Refusal::kNone);
  BP_DCHECK(talk.stage == Stage::kAwaitHello || talk.stage == Stage::kHeld ||
            talk.stage == Stage::kAwaitReady || talk.stage == Stage::kAwaitWelcome);
  if (why != Refusal::kCrossing) tell_once(talk.host, to_text(why));
  if (has_magic(talk.record)) {
    HandshakeRecord refusal = make_record(HandshakeKind::kRefusal, nullptr);
    refusal.refusal = static_cast<uint32_t>(why);
    send_record(talk, refusal);
  }
  drop(talk);
}

// Adopts the peer's record, and gives the link to the shard, which takes messages at once, and
// sends once can_send is set.
void LinkConnector::commit(VerbsLink& link, const HandshakeRecord& record,
                           const char* host) noexcept {
  const LinkState state = link.state.load(std::memory_order_acquire);
  BP_ASSERT(state == LinkState::kDown || state == LinkState::kCutOff);
  BP_DCHECK(is_own_thread() && record.instance != dialing(link).cut_instance);
  link.is_wanted.store(true, std::memory_order_relaxed);
  const bool goes_on =
      record.instance == link.peer_instance && record.known_instance == options_.instance;
  if (!goes_on) {
    link.is_fresh = true;
    link.received = 0;
  }
  link.peer_instance = record.instance;
  link.peer_received = goes_on ? record.received : 0;
  link.peer_place = record.place;
  link.flush_address = record.flush_address;
  link.flush_key = record.flush_key;
  link.datagram_queue = record.datagram_queue;
  link.peer = {
      record.queue_pair, record.packet_number, {}, record.lid, static_cast<ibv_mtu>(record.mtu),
      record.reads_max};
  std::memcpy(link.peer.gid.raw, record.gid, sizeof record.gid);
  std::snprintf(link.host, sizeof link.host, "%s", host);
  link.must_break.store(false, std::memory_order_relaxed);
  link.can_send.store(false, std::memory_order_relaxed);
  link.is_connecting.store(true, std::memory_order_relaxed);
  for (std::atomic<bool>* of_a_life :
       {&link.has_worked, &link.was_refused, &link.has_last_receive}) {
    of_a_life->store(false, std::memory_order_relaxed);
  }
  link.hand_over(LinkState::kUp);
  BP_DCHECK_SLOW(link.is_valid());
  ring();
}

Result<void> LinkConnector::connect_queue_pair(VerbsLink& link) noexcept {
  BP_ASSERT(link.is_connecting.load(std::memory_order_relaxed));
  BP_DCHECK(is_own_thread() && !link.can_send.load(std::memory_order_relaxed));
  auto connected =
      link.queue_pair.connect(link.packet_number, link.mtu, link.peer, options_.timing.retry);
  link.is_connecting.store(false, std::memory_order_release);
  return connected;
}

void LinkConnector::come_up(VerbsLink& link) noexcept {
  BP_ASSERT(!link.is_connecting.load(std::memory_order_relaxed));
  BP_DCHECK(is_own_thread() && talk_of(link, true) != nullptr);
  dialing(link).up_since_ns = monotonic_ns();
  link.can_send.store(true, std::memory_order_release);
  BP_LOG_INFO("verbs: connected to %s at %s", link.name.c_str(), link.host);
  if (link.mtu != link.peer.mtu) {
    BP_LOG_WARNING("verbs: sending to %s at %s: its MTU is %u, that of %s is %u, so packets have "
                   "%u bytes; give both network interfaces the same (ip link set ... mtu ...)",
                   link.name.c_str(), link.host, mtu_bytes(link.peer.mtu),
                   options_.device->kind().name, mtu_bytes(link.mtu),
                   mtu_bytes(std::min(link.mtu, link.peer.mtu)));
  }
  ring();
}

void LinkConnector::break_link(VerbsLink& link) noexcept {
  BP_DCHECK(link.connector == this);
  if (link.must_break.exchange(true, std::memory_order_acq_rel)) return;
  ring();
}

}  // namespace bedplate
