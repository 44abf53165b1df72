// Carries the records of a handshake by a stream socket, or by a call of the RDMA connection
// manager (connection_manager.h). The conversation itself is in link_handshake.cc.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "transport/verbs/connect/link_connector.h"

namespace bedplate {
namespace {

constexpr uint64_t kAcceptPauseNs = 100 * kNsPerMs;

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

Result<void> LinkConnector::listen() noexcept {
  const SocketAddress* address = options_.listen.has_value() ? &*options_.listen : nullptr;
  if (options_.is_by_manager) return manager_.open(*options_.device, address);
  if (address == nullptr) return {};
  auto listening = listen_at(*address);
  if (!listening.ok()) {
    Error error = listening.error();
    return error.set_cure("choose an address that this machine has and nobody listens at");
  }
  listener_ = listening.take();
  set_blocking(listener_.number(), false);
  return {};
}

void LinkConnector::dial(VerbsLink& link, uint64_t now_ns) noexcept {
  BP_ASSERT(link.address.has_value() && talk_of(link, false) == nullptr);
  BP_DCHECK(is_own_thread() && link.is_connectors() && talk_of(link, true) == nullptr);
  Talk* talk = free_talk();
  if (talk == nullptr) return back_off(link, "too many handshakes are under way");
  if (options_.is_by_manager) {
    talk->call = manager_.dial(*link.address);
    if (talk->call == nullptr) return back_off(link, strerror(errno));
  } else {
    auto connecting = start_connecting(*link.address);
    if (!connecting.ok()) return back_off(link, connecting.error().answer);
    talk->fd = connecting.take();
    notice_silence(talk->fd.number(), options_.timing.silence_ns_max);
  }
  talk->link = &link;
  enter(*talk, Stage::kConnecting);
  talk->deadline_ns = now_ns + options_.timing.answer_ns_max;
  std::snprintf(talk->host, sizeof talk->host, "%s", dialing(link).address);
  if (!watch(*talk, EPOLLOUT)) {
    drop(*talk);
    back_off(link, "it cannot be watched");
  }
}

void LinkConnector::accept_one() noexcept {
  BP_DCHECK(is_own_thread() && listener_.is_open() && !options_.is_by_manager);
  Fd fd(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.is_open()) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    const Error shortage = error_from_errno("accepting a connection of verbs, which is tried on")
                               .set_cure("free memory");  // if descriptors were not short
    if (!was_shortage_told_ && device_errors_.try_pass()) {
      log_error(shortage);
      was_shortage_told_ = true;
    }
    drop_strangers(0);
    return listen_again(false);  // it stays readable: we would try without end
  }
  was_shortage_told_ = false;
  drop_strangers(kStrangerCountMax - 1);
  Talk* talk = free_talk();
  if (talk == nullptr) return;  // it will dial again
  notice_silence(fd.number(), options_.timing.silence_ns_max);
  talk->fd = std::move(fd);
  enter(*talk, Stage::kAwaitHello);
  talk->deadline_ns = monotonic_ns() + options_.timing.answer_ns_max;
  host_of(talk->fd.number(), talk->host, sizeof talk->host);
  if (!watch(*talk, EPOLLIN | EPOLLRDHUP)) drop(*talk);
}

void LinkConnector::drop_strangers(uint32_t count_max) noexcept {
  BP_DCHECK(is_own_thread() && count_max <= kStrangerCountMax);
  for (;;) {
    Talk* oldest = nullptr;
    uint32_t count = 0;
    for (Talk& talk : talks_) {
      if (talk.stage != Stage::kAwaitHello) continue;
      ++count;
      if (oldest == nullptr || talk.deadline_ns < oldest->deadline_ns) oldest = &talk;
    }
    if (count <= count_max) return;
    give_up(*oldest, "");
  }
}

// Listens again, or not for a moment: without a free file descriptor, callers at the listener wait.
void LinkConnector::listen_again(bool listens) noexcept {
  BP_ASSERT(listener_.is_open());
  BP_DCHECK(is_own_thread() && (!listens || accept_ns_ != 0));
  epoll_event event = {};
  event.events = listens ? uint32_t{EPOLLIN} : 0;
  event.data.u64 = kListenerToken;
  epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, listener_.number(), &event);
  accept_ns_ = listens ? 0 : monotonic_ns() + kAcceptPauseNs;
}

void LinkConnector::read_talk(Talk& talk) noexcept {
  BP_DCHECK(is_own_thread() && talk.fd.is_open() && talk.bytes < sizeof talk.record);
  BP_DCHECK(talk.stage != Stage::kFree && talk.stage != Stage::kConnecting);
  if (talk.stage == Stage::kHeld) {
    // Its hello was checked and is still needed: nothing may be read over it.
    char more = 0;
    const ssize_t bytes = recv(talk.fd.number(), &more, sizeof more, 0);
    if (bytes > 0) return refuse(talk, Refusal::kMalformed);
    if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) drop(talk);
    return;
  }
  auto* into = reinterpret_cast<char*>(&talk.record) + talk.bytes;
  const ssize_t bytes = recv(talk.fd.number(), into, sizeof talk.record - talk.bytes, 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  // A lifeline ends by a hang-up, or by bytes that nobody asked for.
  if (bytes <= 0 || talk.stage == Stage::kLifeline) return give_up(talk, "it hung up");
  talk.bytes += static_cast<size_t>(bytes);
  // A record without our magic is refused before it is complete.
  const bool is_strange = talk.bytes >= sizeof talk.record.magic && !has_magic(talk.record);
  if (talk.bytes < sizeof talk.record && !is_strange) return;
  talk.bytes = 0;
  handle_record(talk);
}

void LinkConnector::give_up(Talk& talk, const char* why) noexcept {
  BP_DCHECK(is_own_thread() && talk.stage != Stage::kFree && why != nullptr);
  VerbsLink* link = talk.link;
  const Stage stage = talk.stage;
  if (stage == Stage::kAwaitHello && talk.bytes > 0) tell_once(talk.host, "half a record");
  drop(talk);
  if (stage == Stage::kLifeline || stage == Stage::kAwaitReady) break_link(*link);
  if (stage == Stage::kConnecting || stage == Stage::kAwaitWelcome) back_off(*link, why);
}

void LinkConnector::take_manager_events() noexcept {
  BP_DCHECK(is_own_thread() && options_.is_by_manager);
  using Kind = ConnectionManager::Event::Kind;
  const auto name_of = [this](uint32_t hash) -> const char* {
    for (const VerbsLink* link : links_) {
      if (hash_of_name(link->name.c_str()) == hash) return link->name.c_str();
    }
    return nullptr;
  };
  ConnectionManager::Event event;
  while (manager_.take_event(&event, options_.instance, name_of)) {
    if (event.kind == Kind::kCalled) {
      take_call(event);
      continue;
    }
    const auto is_its = [&](const Talk& talk) { return talk.call == event.call; };
    const auto talk = std::find_if(talks_.begin(), talks_.end(), is_its);
    if (talk == talks_.end()) continue;
    const Stage stage = talk->stage;
    if (event.kind == Kind::kHungUp) {
      give_up(*talk, event.why);
    } else if (event.kind == Kind::kReached && stage == Stage::kConnecting) {
      say_hello(*talk);
    } else if (stage == Stage::kAwaitWelcome || stage == Stage::kAwaitReady) {
      talk->record = event.record;
      handle_record(*talk);
    }
  }
}

void LinkConnector::take_call(const ConnectionManager::Event& event) noexcept {
  BP_DCHECK(options_.is_by_manager && event.call != nullptr);
  Talk* talk = free_talk();
  if (talk == nullptr) return manager_.close(event.call);  // it will dial again
  talk->call = event.call;
  enter(*talk, Stage::kAwaitHello);
  talk->deadline_ns = monotonic_ns() + options_.timing.answer_ns_max;
  talk->record = event.record;
  ConnectionManager::host_of(event.call, talk->host, sizeof talk->host);
  handle_record(*talk);
}

bool LinkConnector::send_record(Talk& talk, HandshakeRecord& record) noexcept {
  BP_DCHECK(is_own_thread() && talk.fd.is_open() != (talk.call != nullptr));
  finish_record(record);
  BP_DCHECK_SLOW(check_record(record, static_cast<HandshakeKind>(record.kind)) == Refusal::kNone);
  if (talk.call != nullptr) return manager_.send(talk.call, record);
  // The first bytes of a connection: there is room for them.
  return ::send(talk.fd.number(), &record, sizeof record, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof record);
}

bool LinkConnector::watch(int fd, uint32_t events, uint64_t token) noexcept {
  BP_DCHECK(epoll_.is_open() && fd >= 0 && is_own_thread());
  BP_DCHECK(token >= kManagerToken || token < talks_.size());
  epoll_event event = {};
  event.events = events;
  event.data.u64 = token;
  return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) == 0 ||
         (errno == EEXIST && epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, fd, &event) == 0);
}

bool LinkConnector::watch(Talk& talk, uint32_t events) noexcept {
  if (talk.call != nullptr) return true;
  return watch(talk.fd.number(), events, static_cast<uint64_t>(&talk - talks_.data()));
}

void LinkConnector::drop(Talk& talk) noexcept {
  BP_DCHECK(is_own_thread() && &talk >= talks_.data() && &talk < talks_.data() + talks_.size());
  if (talk.fd.is_open()) {
    // A child of a fork may still have the socket: closing it would tell the peer nothing, and
    // leave it in the epoll.
    shutdown(talk.fd.number(), SHUT_RDWR);
    epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, talk.fd.number(), nullptr);
  }
  if (talk.call != nullptr) manager_.close(talk.call);
  talk = Talk();
}

}  // namespace bedplate
