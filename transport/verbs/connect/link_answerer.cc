#include "transport/verbs/connect/link_answerer.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {
namespace {

using Stage = LinkTalk::Stage;

// "10.0.0.2" or "a local socket": the host, for the log.
void host_of(int fd, char* text, size_t text_bytes) noexcept {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof address;
  std::snprintf(text, text_bytes, "a local socket");
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return;
  const auto* tcp4 = reinterpret_cast<const sockaddr_in*>(&address);
  const auto* tcp6 = reinterpret_cast<const sockaddr_in6*>(&address);
  const auto size = static_cast<socklen_t>(text_bytes);
  if (address.ss_family == AF_INET) inet_ntop(AF_INET, &tcp4->sin_addr, text, size);
  if (address.ss_family == AF_INET6) inet_ntop(AF_INET6, &tcp6->sin6_addr, text, size);
}

}  // namespace

bool LinkAnswerer::is_held_well(const LinkTalk& talk) const noexcept {
  return talk.bytes == 0 && check_record(talk.record, HandshakeKind::kHello) == Refusal::kNone &&
         parts_.link_named(talk.record.name) == talk.link;
}

void LinkAnswerer::take_caller(Fd socket) noexcept {
  BP_DCHECK(parts_.is_own_thread() && socket.is_open() && !parts_.options.is_by_manager);
  drop_strangers(LinkTalks::kStrangerCountMax - 1);
  LinkTalk* talk = parts_.talks.free_one();
  if (talk == nullptr) return;  // the caller will dial again
  notice_silence(socket.number(), parts_.options.timing.silence_ns_max);
  talk->fd = std::move(socket);
  parts_.talks.enter(*talk, Stage::kAwaitHello);
  talk->deadline_ns = monotonic_ns() + parts_.options.timing.answer_ns_max;
  host_of(talk->fd.number(), talk->host, sizeof talk->host);
  if (!parts_.talks.watch(*talk, EPOLLIN | EPOLLRDHUP)) parts_.talks.drop(*talk);
}

void LinkAnswerer::take_call(const ConnectionManager::Event& event) noexcept {
  BP_DCHECK(parts_.options.is_by_manager && event.call != nullptr);
  LinkTalk* talk = parts_.talks.free_one();
  if (talk == nullptr) return parts_.manager.close(event.call);  // the caller will dial again
  talk->call = event.call;
  parts_.talks.enter(*talk, Stage::kAwaitHello);
  talk->deadline_ns = monotonic_ns() + parts_.options.timing.answer_ns_max;
  talk->record = event.record;
  ConnectionManager::host_of(event.call, talk->host, sizeof talk->host);
  take_hello(*talk);
}

void LinkAnswerer::drop_strangers(uint32_t count_max) noexcept {
  while (LinkTalk* talk = parts_.talks.surplus_stranger(count_max)) give_up(*talk);
}

void LinkAnswerer::give_up(LinkTalk& stranger) noexcept {
  BP_DCHECK(parts_.is_own_thread() && stranger.stage == Stage::kAwaitHello);
  if (stranger.bytes > 0) parts_.refused_hosts.tell_once(stranger.host, "an incomplete record");
  parts_.talks.drop(stranger);
}

void LinkAnswerer::take_hello(LinkTalk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kAwaitHello && talk.link == nullptr);
  BP_DCHECK(parts_.is_own_thread() && talk.bytes == 0);
  const HandshakeRecord& record = talk.record;
  const Refusal fault = check_record(record, HandshakeKind::kHello);
  if (fault != Refusal::kNone) return refuse(talk, fault);
  VerbsLink* link = parts_.link_named(record.name);
  if (link == nullptr) return refuse(talk, Refusal::kNotListed);
  if (!handshake_.has_our_shape(record)) return refuse(talk, Refusal::kShape);
  if (LinkTalk* own = parts_.talks.of(*link, false); own != nullptr) {
    // Our call wins only once its hello is sent: a call that is still connecting may never arrive.
    const bool both_said_hello = own->stage == Stage::kAwaitWelcome;
    if (both_said_hello && parts_.options.name < link->name)
      return refuse(talk, Refusal::kCrossing);
    const bool is_answered = own->stage == Stage::kAwaitReady;
    parts_.talks.drop(*own);  // a newer hello counts
    if (is_answered) parts_.changes.break_link(*link);
  }
  talk.link = link;
  parts_.talks.enter(talk, Stage::kHeld);
  answer_hello(talk);
}

void LinkAnswerer::answer_hello(LinkTalk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kHeld && talk.link != nullptr);
  BP_DCHECK_SLOW(parts_.is_own_thread() && is_held_well(talk));
  VerbsLink& link = *talk.link;
  const LinkState state = link.state.load(std::memory_order_acquire);
  if (state == LinkState::kLost) return refuse(talk, Refusal::kDevice);
  if (state == LinkState::kUp) {
    // If both ends dialed, this may be the call that the peer dropped in favour of ours.
    char more = 0;
    const bool is_socket = talk.fd.is_open();
    if (is_socket && recv(talk.fd.number(), &more, sizeof more, MSG_PEEK) == 0)
      return parts_.talks.drop(talk);
    return parts_.changes.break_link(link);
  }
  link.note_cut_off();
  if (talk.record.instance == link.cut_instance) return refuse(talk, Refusal::kCutOff);
  if (LinkTalk* lifeline = parts_.talks.of(link, true); lifeline != nullptr)
    parts_.talks.drop(*lifeline);
  const HandshakeRecord record = talk.record;
  handshake_.begin(link);
  HandshakeRecord welcome = handshake_.make_record(HandshakeKind::kWelcome, &link);
  handshake_.commit(link, record, talk.host);
  parts_.talks.enter(talk, Stage::kAwaitReady);
  const auto connected = handshake_.connect_queue_pair(link);
  if (connected.ok()) {
    if (parts_.talks.send(talk, welcome)) return;
    parts_.talks.drop(talk);
    return parts_.changes.break_link(link);
  }
  if (device_errors_.try_pass()) log_error(connected.error());
  refuse(talk, Refusal::kDevice);
  parts_.changes.break_link(link);
}

void LinkAnswerer::take_ready(LinkTalk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kAwaitReady && talk.link != nullptr);
  BP_DCHECK(parts_.is_own_thread());
  VerbsLink& link = *talk.link;
  if (check_record(talk.record, HandshakeKind::kReady) != Refusal::kNone) {
    parts_.talks.drop(talk);
    return parts_.changes.break_link(link);
  }
  parts_.talks.enter(talk, Stage::kLifeline);
  handshake_.come_up(link);
}

void LinkAnswerer::read_held(LinkTalk& talk) noexcept {
  BP_DCHECK(parts_.is_own_thread() && talk.stage == Stage::kHeld && talk.fd.is_open());
  char more = 0;
  const ssize_t bytes = recv(talk.fd.number(), &more, sizeof more, 0);
  if (bytes > 0) return refuse(talk, Refusal::kMalformed);
  if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) parts_.talks.drop(talk);
}

void LinkAnswerer::refuse(LinkTalk& talk, Refusal why) noexcept {
  BP_DCHECK(parts_.is_own_thread() && why != Refusal::kNone);
  BP_DCHECK(talk.stage == Stage::kAwaitHello || talk.stage == Stage::kHeld ||
            talk.stage == Stage::kAwaitReady);
  if (why != Refusal::kCrossing) parts_.refused_hosts.tell_once(talk.host, to_text(why));
  if (has_magic(talk.record)) {
    HandshakeRecord refusal = handshake_.make_record(HandshakeKind::kRefusal, nullptr);
    refusal.refusal = static_cast<uint32_t>(why);
    parts_.talks.send(talk, refusal);
  }
  parts_.talks.drop(talk);
}

}  // namespace bedplate
