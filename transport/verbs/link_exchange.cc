#include "transport/verbs/link_exchange.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <arpa/inet.h>
#include <netinet/in.h>
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

constexpr int kTickMs = 5;  // while something is being waited for that has no event
constexpr uint64_t kIdleMs = 1000;

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

}  // namespace

Result<void> LinkExchange::start(const LinkExchangeOptions& options,
                                 std::vector<VerbsLink*> links) {
  BP_ASSERT(!is_running_ && options.instance != 0 && options.bell != nullptr);
  options_ = options;
  links_ = std::move(links);
  dialing_.assign(links_.size(), {});
  talks_ = std::vector<Talk>(2 * links_.size() + kStrangerCountMax);
  told_hosts_.reserve(kToldHostCountMax);
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
    for (VerbsLink* link : links_) look_after(*link, now_ns);
  }
}

// How long nothing needs to be looked at. What is under way is short, so a tick serves for all of
// it; a peer that nobody reaches costs a wake-up for each try.
int LinkExchange::wait_ms() const noexcept {
  for (const Talk& talk : talks_) {
    if (talk.stage != Stage::kFree && talk.stage != Stage::kLifeline) return kTickMs;
  }
  uint64_t wait_ns = kIdleMs * kNsPerMs;
  const uint64_t now_ns = monotonic_ns();
  for (const VerbsLink* link : links_) {
    const bool is_up = link->state.load(std::memory_order_acquire) == LinkState::kUp;
    if (is_up && link->must_break.load(std::memory_order_acquire)) return kTickMs;
    const Dialing& one = dialing_[link->place];
    if (one.down_since_ns == 0 || !link->address.has_value()) continue;
    wait_ns = std::min(wait_ns, one.next_ns > now_ns ? one.next_ns - now_ns : kNsPerMs);
  }
  return static_cast<int>(wait_ns / kNsPerMs) + 1;
}

void LinkExchange::handle_event(uint64_t token) noexcept {
  if (token == kWakeToken) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(wake_.number(), &count, sizeof count);
  } else if (token == kListenerToken) {
    accept_one();
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
  if (!fd.is_open()) return;
  const auto is_stranger = [](const Talk& talk) { return talk.stage == Stage::kAwaitHello; };
  Talk* talk = free_talk();
  if (talk == nullptr ||
      std::count_if(talks_.begin(), talks_.end(), is_stranger) >= kStrangerCountMax) {
    return;  // it will dial again
  }
  talk->fd = std::move(fd);
  talk->stage = Stage::kAwaitHello;
  talk->deadline_ns = monotonic_ns() + options_.timing.answer_ns_max;
  host_of(talk->fd.number(), talk->host, sizeof talk->host);
  if (!watch(*talk, EPOLLIN | EPOLLRDHUP)) drop(*talk);
}

void LinkExchange::read_talk(Talk& talk) noexcept {
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
    default:  // it says more before it was answered
      return refuse(talk, Refusal::kMalformed);
  }
}

// A link is down: hang up, so that the peer knows; dial, if it is for us to do so.
void LinkExchange::look_after(VerbsLink& link, uint64_t now_ns) noexcept {
  const LinkState state = link.state.load(std::memory_order_acquire);
  if (state == LinkState::kUp) {
    // The shard has to look until it is down, also one that sleeps.
    if (link.must_break.load(std::memory_order_acquire)) ring();
    return;
  }
  Dialing& dial_state = dialing(link);
  if (Talk* lifeline = talk_of(link, true); lifeline != nullptr) drop(*lifeline);
  Talk* talk = talk_of(link, false);
  if (talk != nullptr && talk->stage == Stage::kAwaitReady) drop(*talk);
  if (state == LinkState::kLost) return;
  if (state == LinkState::kCutOff) return note_cut_off(link);
  if (!link.is_wanted.load(std::memory_order_acquire)) return;
  if (dial_state.down_since_ns == 0) {
    dial_state.down_since_ns = now_ns;
    dial_state.next_ns = now_ns;
    dial_state.backoff_ns = options_.timing.backoff_ns_min;
    dial_state.was_told = false;
  }
  if (now_ns - dial_state.down_since_ns > options_.timing.give_up_ns) {
    link.is_given_up.store(true, std::memory_order_release);
  }
  if (link.address.has_value() && now_ns >= dial_state.next_ns &&
      talk_of(link, false) == nullptr) {
    dial(link, now_ns);
  }
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
  std::snprintf(talk->host, sizeof talk->host, "%s", link.address->text().c_str());
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
  talk = Talk();  // closing takes it out of the epoll
}

VerbsLink* LinkExchange::link_named(const char* name) noexcept {
  for (VerbsLink* link : links_) {
    if (link->name == name) return link;
  }
  return nullptr;
}

void LinkExchange::tell_once(const char* host, const char* why) noexcept {
  refused_.fetch_add(1, std::memory_order_relaxed);
  if (told_hosts_.size() == kToldHostCountMax ||
      std::find(told_hosts_.begin(), told_hosts_.end(), host) != told_hosts_.end()) {
    return;
  }
  told_hosts_.emplace_back(host);
  BP_LOG_WARNING("verbs: refusing a connection from %s: %s; further ones are counted only", host,
                 why);
}

}  // namespace bedplate
