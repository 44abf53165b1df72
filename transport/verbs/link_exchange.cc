#include "transport/verbs/link_exchange.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/log.h"

namespace bedplate {
namespace {

// What epoll says who it is; talks have their index.
constexpr uint64_t kWakeToken = UINT64_MAX;
constexpr uint64_t kListenerToken = UINT64_MAX - 1;
constexpr uint64_t kCompletionToken = UINT64_MAX - 2;
constexpr uint64_t kDeviceToken = UINT64_MAX - 3;

constexpr int kTickMs = 5;  // while something is being waited for that has no event
constexpr uint64_t kIdleMs = 1000;
constexpr uint64_t kAcceptPauseNs = 100 * kNsPerMs;

bool add_to(int epoll_fd, int fd, uint32_t events, uint64_t token) noexcept {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = token;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

// "10.0.0.2" or "a local socket": whom a line of the log is about.
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

// A host that lost its power says nothing, on a connection on which nobody says anything: it is
// asked by the kernel (tcp(7)). A Unix socket refuses the options, and needs none.
void notice_silence(int fd, uint64_t silence_ns_max) noexcept {
  constexpr int kProbeCount = 3;
  const int on = 1;
  const int seconds =
      std::max(1, static_cast<int>(silence_ns_max / (kProbeCount * kNsPerSecond)));
  const auto unanswered_ms = static_cast<unsigned>(silence_ns_max / kNsPerMs);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kProbeCount, sizeof kProbeCount);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

}  // namespace

Result<void> LinkExchange::start(const LinkExchangeOptions& options,
                                 std::vector<VerbsLink*> links) {
  BP_ASSERT(!is_running_ && options.instance != 0 && options.bell != nullptr);
  BP_ASSERT(options.device != nullptr);
  options_ = options;
  links_ = std::move(links);
  dialing_.assign(links_.size(), {});
  talks_ = std::vector<Talk>(2 * links_.size() + kStrangerCountMax);
  for (VerbsLink* link : links_) {
    link->exchange = this;
    if (!link->address.has_value()) continue;
    std::snprintf(dialing(*link).address, sizeof Dialing::address, "%s",
                  link->address->text().c_str());
  }
  device_faults_ = options_.device->fault_count();
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (options_.listen.has_value()) {
    auto listening = listen_at(*options_.listen);
    if (!listening.ok()) {
      Error error = listening.error();
      return error.set_cure("choose an address that this machine has and nobody listens at");
    }
    listener_ = listening.take();
    set_blocking(listener_.number(), false);
  }
  const bool is_watched =
      epoll_.is_open() && wake_.is_open() &&
      add_to(epoll_.number(), wake_.number(), EPOLLIN, kWakeToken) &&
      add_to(epoll_.number(), options_.device->event_fd(), EPOLLIN, kDeviceToken) &&
      (!listener_.is_open() ||
       add_to(epoll_.number(), listener_.number(), EPOLLIN, kListenerToken)) &&
      (options_.loop_bell == nullptr || options_.completion_fd < 0 ||
       // Edges: the shard reads it, this thread only rings.
       add_to(epoll_.number(), options_.completion_fd, EPOLLIN | EPOLLET, kCompletionToken));
  if (!is_watched) {
    return error_from_errno("watching the sockets of verbs connections")
        .set_cure("raise the limit of open files (ulimit -n)");
  }
  BP_TRY(thread_.start(
      "verbs-exchange", [](void* self) noexcept { static_cast<LinkExchange*>(self)->run(); },
      this));
  is_running_ = true;
  return {};
}

void LinkExchange::stop() noexcept {
  if (!is_running_) return;
  must_stop_.store(true, std::memory_order_release);
  wake();
  thread_.join();
  is_running_ = false;
  talks_.clear();
  listener_.close();
}

void LinkExchange::wake() noexcept {
  const uint64_t one = 1;
  // It fails only when it is readable already.
  [[maybe_unused]] const ssize_t written = write(wake_.number(), &one, sizeof one);
}

void LinkExchange::ring() noexcept {
  changes_.fetch_add(1, std::memory_order_release);  // pairs with changes()
  options_.bell->ring();
  if (options_.loop_bell != nullptr) options_.loop_bell->ring();
}

void LinkExchange::run() noexcept {
  while (!must_stop_.load(std::memory_order_acquire)) {
    epoll_event events[16];
    const int count = epoll_wait(epoll_.number(), events, std::size(events),
                                 wait_ms());
    for (int i = 0; i < count; ++i) handle_event(events[i].data.u64);
    const uint64_t now_ns = monotonic_ns();
    if (accept_ns_ != 0 && now_ns >= accept_ns_) listen_again(true);
    for (Talk& talk : talks_) {
      if (talk.stage == Stage::kHeld) answer_hello(talk);
      if (talk.stage == Stage::kFree || talk.stage == Stage::kLifeline) continue;
      if (now_ns < talk.deadline_ns) continue;
      VerbsLink* link = talk.link;
      const Stage stage = talk.stage;
      drop(talk);
      if (stage == Stage::kAwaitReady) break_link(*link);
      if (stage == Stage::kConnecting || stage == Stage::kAwaitWelcome) {
        back_off(*link, "no answer in time");
      }
    }
    const uint32_t faults = options_.device->fault_count();
    for (VerbsLink* link : links_) {
      if (faults != device_faults_) break_link(*link);
      look_after(*link, now_ns);
    }
    device_faults_ = faults;
  }
}

// How long nothing needs to be looked at. What is under way is short, so a tick serves for all of
// it; a peer that nobody reaches costs a wake-up for each try.
int LinkExchange::wait_ms() const noexcept {
  for (const Talk& talk : talks_) {
    if (talk.stage != Stage::kFree && talk.stage != Stage::kLifeline) return kTickMs;
  }
  if (accept_ns_ != 0) return kTickMs;
  uint64_t wait_ns = kIdleMs * kNsPerMs;
  const uint64_t now_ns = monotonic_ns();
  for (const VerbsLink* link : links_) {
    const bool is_up = link->state.load(std::memory_order_acquire) == LinkState::kUp;
    if (is_up && link->must_break.load(std::memory_order_acquire)) return kTickMs;
    const Dialing& one = dialing_[link->place];
    if (one.down_since_ns == 0 || (!is_up && !link->address.has_value())) continue;
    const uint64_t next_ns =
        is_up ? one.up_since_ns + options_.timing.backoff_ns_max : one.next_ns;
    wait_ns = std::min(wait_ns, next_ns > now_ns ? next_ns - now_ns : kNsPerMs);
  }
  return static_cast<int>(wait_ns / kNsPerMs) + 1;
}

void LinkExchange::handle_event(uint64_t token) noexcept {
  if (token == kWakeToken) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(wake_.number(), &count, sizeof count);
  } else if (token == kListenerToken) {
    accept_one();
  } else if (token == kDeviceToken) {
    options_.device->take_events();
  } else if (token == kCompletionToken) {
    options_.loop_bell->ring();
  } else if (Talk& talk = talks_[token]; talk.stage == Stage::kConnecting) {
    say_hello(talk);
  } else if (talk.stage != Stage::kFree) {
    read_talk(talk);
  }
}

void LinkExchange::accept_one() noexcept {
  Fd fd(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.is_open()) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
    if (device_errors_.try_pass()) log_error(error_from_errno("accepting a connection of verbs"));
    drop_strangers(0);
    return listen_again(false);  // it stays readable, and would be tried without end
  }
  drop_strangers(kStrangerCountMax - 1);
  Talk* talk = free_talk();
  if (talk == nullptr) return;  // it will dial again
  notice_silence(fd.number(), options_.timing.silence_ns_max);
  talk->fd = std::move(fd);
  talk->stage = Stage::kAwaitHello;
  talk->deadline_ns = monotonic_ns() + options_.timing.answer_ns_max;
  host_of(talk->fd.number(), talk->host, sizeof talk->host);
  if (!watch(*talk, EPOLLIN | EPOLLRDHUP)) drop(*talk);
}

void LinkExchange::drop_strangers(uint32_t count_max) noexcept {
  for (;;) {
    Talk* oldest = nullptr;
    uint32_t count = 0;
    for (Talk& talk : talks_) {
      if (talk.stage != Stage::kAwaitHello) continue;
      ++count;
      if (oldest == nullptr || talk.deadline_ns < oldest->deadline_ns) oldest = &talk;
    }
    if (count <= count_max) return;
    drop(*oldest);
  }
}

// No file descriptor is left: what waits at the listener waits a moment longer.
void LinkExchange::listen_again(bool listens) noexcept {
  epoll_event event = {};
  event.events = listens ? uint32_t{EPOLLIN} : 0;
  event.data.u64 = kListenerToken;
  epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, listener_.number(), &event);
  accept_ns_ = listens ? 0 : monotonic_ns() + kAcceptPauseNs;
}

void LinkExchange::read_talk(Talk& talk) noexcept {
  if (talk.stage == Stage::kHeld) {
    // Its hello was checked and is still to be used: nothing more may be read over it.
    char more = 0;
    const ssize_t bytes = recv(talk.fd.number(), &more, sizeof more, 0);
    if (bytes > 0) return refuse(talk, Refusal::kMalformed);
    if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) drop(talk);
    return;
  }
  auto* into = reinterpret_cast<char*>(&talk.record) + talk.bytes;
  const ssize_t bytes = recv(talk.fd.number(), into, sizeof talk.record - talk.bytes, 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  VerbsLink* link = talk.link;
  const Stage stage = talk.stage;
  if (stage == Stage::kLifeline) {  // it hangs up, or says what nobody asked for
    drop(talk);
    break_link(*link);
    return;
  }
  if (bytes <= 0) {
    if (stage == Stage::kAwaitHello && talk.bytes > 0) tell_once(talk.host, "half a record");
    drop(talk);
    if (stage == Stage::kAwaitReady) break_link(*link);
    if (stage == Stage::kAwaitWelcome) back_off(*link, "it hung up");
    return;
  }
  talk.bytes += static_cast<size_t>(bytes);
  if (talk.bytes < sizeof talk.record) {
    // Whoever does not even know the first word need not finish.
    if (talk.bytes >= sizeof talk.record.magic && !has_magic(talk.record)) {
      refuse(talk, Refusal::kMalformed);
    }
    return;
  }
  talk.bytes = 0;
  handle_record(talk);
}

void LinkExchange::handle_record(Talk& talk) noexcept {
  switch (talk.stage) {
    case Stage::kAwaitHello: return take_hello(talk);
    case Stage::kAwaitWelcome: return take_welcome(talk);
    case Stage::kAwaitReady: {
      VerbsLink& link = *talk.link;
      if (check_record(talk.record, ExchangeKind::kReady) != Refusal::kNone) {
        drop(talk);
        return break_link(link);
      }
      talk.stage = Stage::kLifeline;
      return come_up(link);
    }
    default: BP_ASSERT(false);  // nothing is read in any other
  }
}

// A link is down: hang up, so that the peer knows; dial, if it is for us to do so.
void LinkExchange::look_after(VerbsLink& link, uint64_t now_ns) noexcept {
  const LinkState state = link.state.load(std::memory_order_acquire);
  if (state == LinkState::kUp) {
    // The shard has to look until it is down, also one that sleeps.
    if (link.must_break.load(std::memory_order_acquire)) return ring();
    if (!has_been_of_use(link, now_ns)) return;
    dialing(link).down_since_ns = 0;
    return link.is_given_up.store(false, std::memory_order_release);
  }
  Dialing& dial_state = dialing(link);
  const bool was_up = dial_state.up_since_ns != 0;
  if (has_been_of_use(link, now_ns)) dial_state.down_since_ns = 0;
  dial_state.up_since_ns = 0;
  if (Talk* lifeline = talk_of(link, true); lifeline != nullptr) drop(*lifeline);
  Talk* talk = talk_of(link, false);
  if (talk != nullptr && talk->stage == Stage::kAwaitReady) drop(*talk);
  if (state == LinkState::kLost) return;
  note_cut_off(link);
  if (!link.is_wanted.load(std::memory_order_acquire)) return;
  const bool is_new = dial_state.down_since_ns == 0;
  if (is_new) {
    dial_state.down_since_ns = now_ns;
    dial_state.next_ns = now_ns;
    dial_state.backoff_ns = options_.timing.backoff_ns_min;
    dial_state.was_told = false;
  }
  // Where a peer was cut off another instance of it may come up.
  const bool is_cut_off = state == LinkState::kCutOff;
  if (is_cut_off) dial_state.backoff_ns = options_.timing.backoff_ns_max;
  if (is_new ? is_cut_off : was_up) delay_next(dial_state);
  if (now_ns - dial_state.down_since_ns > options_.timing.give_up_ns) {
    link.is_given_up.store(true, std::memory_order_release);
  }
  if (link.address.has_value() && now_ns >= dial_state.next_ns &&
      talk_of(link, false) == nullptr) {
    dial(link, now_ns);
  }
}

// Trouble is forgotten only then: a link that breaks as soon as it is up is dialed as seldom as one
// that never comes up.
bool LinkExchange::has_been_of_use(const VerbsLink& link, uint64_t now_ns) const noexcept {
  const uint64_t up_since_ns = dialing_[link.place].up_since_ns;
  return up_since_ns != 0 && (link.has_worked.load(std::memory_order_acquire) ||
                              now_ns - up_since_ns >= options_.timing.backoff_ns_max);
}

void LinkExchange::dial(VerbsLink& link, uint64_t now_ns) noexcept {
  auto connecting = start_connecting(*link.address);
  if (!connecting.ok()) return back_off(link, connecting.error().answer);
  Talk* talk = free_talk();
  if (talk == nullptr) return back_off(link, "too many exchanges are under way");
  talk->fd = connecting.take();
  talk->link = &link;
  talk->stage = Stage::kConnecting;
  talk->deadline_ns = now_ns + options_.timing.answer_ns_max;
  std::snprintf(talk->host, sizeof talk->host, "%s", dialing(link).address);
  notice_silence(talk->fd.number(), options_.timing.silence_ns_max);
  if (!watch(*talk, EPOLLOUT)) {
    drop(*talk);
    back_off(link, "it cannot be watched");
  }
}

void LinkExchange::back_off(VerbsLink& link, const char* why) noexcept {
  Dialing& state = dialing(link);
  if (!state.was_told) {
    BP_LOG_WARNING("verbs: connecting to %s: %s; trying on", link.name.c_str(), why);
    state.was_told = true;
  }
  delay_next(state);
}

void LinkExchange::delay_next(Dialing& state) noexcept {
  state.next_ns = monotonic_ns() + state.backoff_ns;
  state.backoff_ns = std::min(2 * state.backoff_ns, options_.timing.backoff_ns_max);
}

bool LinkExchange::send_record(Talk& talk, ExchangeRecord& record) noexcept {
  finish_record(record);
  // The first bytes of a connection: there is room for them.
  return send(talk.fd.number(), &record, sizeof record, MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof record);
}

LinkExchange::Talk* LinkExchange::free_talk() noexcept {
  for (Talk& talk : talks_) {
    if (talk.stage == Stage::kFree) return &talk;
  }
  return nullptr;
}

LinkExchange::Talk* LinkExchange::talk_of(const VerbsLink& link, bool is_lifeline) noexcept {
  for (Talk& talk : talks_) {
    if (talk.stage != Stage::kFree && talk.link == &link &&
        (talk.stage == Stage::kLifeline) == is_lifeline) {
      return &talk;
    }
  }
  return nullptr;
}

bool LinkExchange::watch(Talk& talk, uint32_t events) noexcept {
  const auto token = static_cast<uint64_t>(&talk - talks_.data());
  epoll_event event = {};
  event.events = events;
  event.data.u64 = token;
  return add_to(epoll_.number(), talk.fd.number(), events, token) ||
         epoll_ctl(epoll_.number(), EPOLL_CTL_MOD, talk.fd.number(), &event) == 0;
}

void LinkExchange::drop(Talk& talk) noexcept {
  if (talk.fd.is_open()) {
    // A child of a fork may still have the socket: closing it would tell the peer nothing, and
    // leave it in the epoll.
    shutdown(talk.fd.number(), SHUT_RDWR);
    epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, talk.fd.number(), nullptr);
  }
  talk = Talk();
}

VerbsLink* LinkExchange::link_named(const char* name) noexcept {
  for (VerbsLink* link : links_) {
    if (link->name == name) return link;
  }
  return nullptr;
}

void LinkExchange::tell_once(const char* host, const char* why) noexcept {
  refused_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t i = 0; i < told_host_count_; ++i) {
    if (std::strcmp(told_hosts_[i], host) == 0) return;
  }
  if (told_host_count_ == kToldHostCountMax) return;
  std::snprintf(told_hosts_[told_host_count_++], sizeof told_hosts_[0], "%s", host);
  BP_LOG_WARNING("verbs: refusing a connection from %s: %s; further ones are counted only", host,
                 why);
}

}  // namespace bedplate
