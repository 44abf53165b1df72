#include "transport/verbs/connect/link_dialer.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <sys/epoll.h>
#include <sys/socket.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {
namespace {

using Stage = LinkTalk::Stage;

}  // namespace

void LinkDialer::open() {
  for (const VerbsLink* link : parts_.links) {
    addresses_.push_back(link->address.has_value() ? link->address->text() : "");
  }
}

void LinkDialer::look_after(VerbsLink& link, bool was_up, uint64_t now_ns) noexcept {
  BP_DCHECK(parts_.is_own_thread() && link.is_connectors());
  LinkBackoff& backoff = parts_.backoff(link);
  const bool is_cut_off = link.state.load(std::memory_order_acquire) == LinkState::kCutOff;
  backoff.stay_down(was_up, is_cut_off, now_ns);
  if (backoff.is_hopeless(now_ns)) link.is_given_up.store(true, std::memory_order_release);
  if (link.address.has_value() && backoff.is_due(now_ns) &&
      parts_.talks.of(link, false) == nullptr) {
    dial(link, now_ns);
  }
}

void LinkDialer::dial(VerbsLink& link, uint64_t now_ns) noexcept {
  BP_ASSERT(link.address.has_value() && parts_.talks.of(link, false) == nullptr);
  BP_DCHECK(parts_.is_own_thread() && link.is_connectors() &&
            parts_.talks.of(link, true) == nullptr);
  LinkTalk* talk = parts_.talks.free_one();
  if (talk == nullptr) return back_off(link, "too many handshakes are under way");
  if (parts_.options.is_by_manager) {
    talk->call = parts_.manager.dial(*link.address);
    if (talk->call == nullptr) return back_off(link, strerror(errno));
  } else {
    auto connecting = start_connecting(*link.address);
    if (!connecting.ok()) return back_off(link, connecting.error().answer);
    talk->fd = connecting.take();
    notice_silence(talk->fd.number(), parts_.options.timing.silence_ns_max);
  }
  talk->link = &link;
  parts_.talks.enter(*talk, Stage::kConnecting);
  talk->deadline_ns = now_ns + parts_.options.timing.answer_ns_max;
  std::snprintf(talk->host, sizeof talk->host, "%s", addresses_[link.index].c_str());
  if (!parts_.talks.watch(*talk, EPOLLOUT)) {
    parts_.talks.drop(*talk);
    back_off(link, "its socket cannot be watched");
  }
}

void LinkDialer::say_hello(LinkTalk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kConnecting && talk.link != nullptr);
  BP_DCHECK(parts_.is_own_thread() && talk.link->address.has_value());
  VerbsLink& link = *talk.link;
  int outcome = 0;
  socklen_t bytes = sizeof outcome;
  if (talk.fd.is_open()) getsockopt(talk.fd.number(), SOL_SOCKET, SO_ERROR, &outcome, &bytes);
  handshake_.begin(link);
  HandshakeRecord hello = handshake_.make_record(HandshakeKind::kHello, &link);
  if (outcome == 0 &&
      (!parts_.talks.send(talk, hello) || !parts_.talks.watch(talk, EPOLLIN | EPOLLRDHUP))) {
    outcome = errno;
  }
  if (outcome != 0) {
    parts_.talks.drop(talk);
    return back_off(link, strerror(outcome));
  }
  parts_.talks.enter(talk, Stage::kAwaitWelcome);
}

void LinkDialer::take_answer(LinkTalk& talk) noexcept {
  BP_ASSERT(talk.stage == Stage::kAwaitWelcome && talk.link != nullptr);
  BP_DCHECK(parts_.is_own_thread() && talk.link->is_connectors());
  if (check_record(talk.record, HandshakeKind::kRefusal) == Refusal::kNone) {
    take_refusal(talk);
  } else {
    take_welcome(talk);
  }
}

void LinkDialer::take_welcome(LinkTalk& talk) noexcept {
  VerbsLink& link = *talk.link;
  const HandshakeRecord record = talk.record;
  const bool is_welcome = check_record(record, HandshakeKind::kWelcome) == Refusal::kNone;
  if (is_welcome && link.name != record.name) {
    char why[64];
    std::snprintf(why, sizeof why, "it calls itself %s", record.name);
    back_off(link, why, "correct the address of this peer, or its name");
    return parts_.talks.drop(talk);
  }
  if (!is_welcome || !handshake_.has_our_shape(record)) {
    parts_.refused_hosts.tell_once(talk.host, "it answers with a malformed record");
    parts_.talks.drop(talk);
    return back_off(link, "a malformed answer", cure_of(Refusal::kMalformed));
  }
  if (record.instance == link.cut_instance) {
    parts_.talks.drop(talk);
    return back_off(link, "it violated the protocol before", "restart it");
  }
  // The shard takes messages as soon as the queue pair can receive.
  HandshakeRecord ready = handshake_.make_record(HandshakeKind::kReady, &link);
  handshake_.commit(link, record, talk.host);
  parts_.talks.enter(talk, Stage::kLifeline);
  const auto connected = handshake_.connect_queue_pair(link);
  if (connected.ok() && parts_.talks.send(talk, ready)) return handshake_.come_up(link);
  if (connected.ok()) {
    back_off(link, "it hung up");
  } else {
    const Error& error = connected.error();
    char why[sizeof error.doing + sizeof error.answer + 2];
    std::snprintf(why, sizeof why, "%s: %s", error.doing, error.answer);
    back_off(link, why, error.cure);
  }
  parts_.changes.break_link(link);
}

void LinkDialer::take_refusal(LinkTalk& talk) noexcept {
  BP_DCHECK(parts_.is_own_thread() && talk.stage == Stage::kAwaitWelcome && talk.link != nullptr);
  VerbsLink& link = *talk.link;
  const auto why = static_cast<Refusal>(talk.record.refusal);
  parts_.talks.drop(talk);
  if (why == Refusal::kCrossing) {  // the peer's own hello is on the way
    parts_.backoff(link).wait_until(monotonic_ns() + parts_.options.timing.answer_ns_max);
    return;
  }
  char text[128];
  std::snprintf(text, sizeof text, "it refuses: %s", to_text(why));
  back_off(link, text, cure_of(why));
}

void LinkDialer::give_up(LinkTalk& talk, const char* why) noexcept {
  BP_DCHECK(parts_.is_own_thread() && talk.is_dialing());
  VerbsLink& link = *talk.link;
  parts_.talks.drop(talk);
  back_off(link, why);
}

void LinkDialer::back_off(VerbsLink& link, const char* why, const char* cure) noexcept {
  BP_DCHECK(parts_.is_own_thread() && why != nullptr);
  LinkBackoff& backoff = parts_.backoff(link);
  if (cure == nullptr) {
    cure = "check that it runs and listens there";
    if (parts_.options.is_by_manager) {
      cure = parts_.options.device->quirks().loses_manager
                 ? "check that it runs and listens there, by rdma_cm too; if the interface of soft "
                   "RoCE was down on either side, make its link again (rdma link delete, add)"
                 : "check that it runs and listens there, by rdma_cm too";
    }
  }
  if (backoff.try_tell(monotonic_ns())) {
    BP_LOG_WARNING("verbs: connecting to %s at %s: %s; still trying; %s", link.name.c_str(),
                   addresses_[link.index].c_str(), why, cure);
  }
  backoff.delay();
}

}  // namespace bedplate
