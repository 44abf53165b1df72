#include "transport/verbs/connect/link_connector.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>
#include <utility>

#include <sys/epoll.h>

#include "platform/clock.h"
#include "platform/forbidden_calls.h"
#include "platform/random_bytes.h"

namespace bedplate {
namespace {

constexpr int kTickMs = 5;  // while it waits for a condition without an event
constexpr uint64_t kIdleMs = 1000;

using Stage = LinkTalk::Stage;

bool is_up(const VerbsLink& link) noexcept {
  return link.state.load(std::memory_order_acquire) == LinkState::kUp;
}

}  // namespace

bool LinkConnector::is_valid() const noexcept {
  if (!parts_.talks.is_valid() || !parts_.refused_hosts.is_valid() || !listener_.is_valid()) {
    return false;
  }
  if (parts_.links.size() != parts_.backoffs.size()) return false;
  return std::ranges::all_of(parts_.talks.all(),
                             [this](const LinkTalk& talk) { return is_valid(talk); }) &&
         std::ranges::all_of(parts_.links,
                             [this](const VerbsLink* link) { return is_valid(*link); });
}

bool LinkConnector::is_valid(const LinkTalk& talk) const noexcept {
  if (talk.link == nullptr) return true;
  if (talk.stage == Stage::kHeld && !answerer_.is_held_well(talk)) return false;
  const bool was_up = talk.stage == Stage::kLifeline || talk.stage == Stage::kAwaitReady;
  if (was_up && talk.link->peer_instance == 0) return false;
  if (!talk.is_dialing()) return true;
  return talk.link->address.has_value() && talk.link->is_connectors();
}

bool LinkConnector::is_valid(const VerbsLink& link) const noexcept {
  if (parts_.links[link.index] != &link || link.connector != this || !link.is_valid()) return false;
  if (!parts_.backoffs[link.index].is_valid()) return false;
  // The order matters: must_break is set before the shard takes the link down.
  if (link.must_break.load(std::memory_order_acquire)) return true;
  if (!is_up(link)) return true;
  const LinkTalk* talk = parts_.talks.of(link, false);
  return parts_.talks.of(link, true) != nullptr ||
         (talk != nullptr && talk->stage == Stage::kAwaitReady);
}

Result<void> LinkConnector::start(const LinkConnectorOptions& options,
                                  std::vector<VerbsLink*> links) {
  BP_ASSERT(!is_running_ && options.instance != 0 && options.bell != nullptr);
  BP_ASSERT(options.device != nullptr);
  BP_DCHECK(std::has_single_bit(options.window) && options.message_bytes > 0);
  BP_DCHECK(options.timing.backoff_ns_min > 0 && options.timing.answer_ns_max > 0);
  parts_.options = options;
  parts_.links = std::move(links);
  parts_.backoffs.assign(parts_.links.size(), LinkBackoff(parts_.options.timing));
  parts_.talks.open(parts_.links.size());
  parts_.changes.open(*options.bell, options.loop_bell);
  dialer_.open();
  for (VerbsLink* link : parts_.links) link->connector = this;
  device_faults_ = options.device->fault_count();
  BP_TRY(listen());
  if (!watch_all()) {
    Error error = error_from_errno("watching the sockets of verbs connections");
    if (says_forbidden(errno)) {
      return set_cure_of_forbidden(&error, "epoll_create1, epoll_ctl, epoll_wait or eventfd2");
    }
    return error.set_cure("raise the limit of open files (ulimit -n)");
  }
  std::byte some[4];
  BP_TRY(draw_bytes(some));
  BP_TRY(thread_.start(
      "verbs-connect", [](void* self) noexcept { static_cast<LinkConnector*>(self)->run(); },
      this));
  is_running_ = true;
  return {};
}

Result<void> LinkConnector::listen() noexcept {
  const LinkConnectorOptions& options = parts_.options;
  const SocketAddress* address = options.listen.has_value() ? &*options.listen : nullptr;
  if (options.is_by_manager) return parts_.manager.open(*options.device, address);
  return address == nullptr ? Result<void>() : listener_.open(*address);
}

bool LinkConnector::watch_all() noexcept {
  const LinkConnectorOptions& options = parts_.options;
  LinkEvents& events = parts_.events;
  return events.open() &&
         events.watch(options.device->event_fd(), EPOLLIN, LinkEvents::kDeviceToken) &&
         (!listener_.is_open() || listener_.watch()) &&
         (!parts_.manager.is_open() ||
          events.watch(parts_.manager.event_fd(), EPOLLIN, LinkEvents::kManagerToken)) &&
         (options.loop_bell == nullptr || options.completion_fd < 0 ||
          // Edge-triggered: the shard reads the events, this thread only rings.
          events.watch(options.completion_fd, EPOLLIN | EPOLLET, LinkEvents::kCompletionToken));
}

void LinkConnector::stop() noexcept {
  if (!is_running_) return;
  must_stop_.store(true, std::memory_order_release);
  wake();
  thread_.join();
  is_running_ = false;
  parts_.talks.close();
  listener_.close();
}

void LinkConnector::run() noexcept {
  const ThreadOwner::Hold hold(parts_.owner);
  while (!must_stop_.load(std::memory_order_acquire)) {
    epoll_event events[16];
    const int count = parts_.events.wait(events, wait_ms());
    for (int i = 0; i < count; ++i) handle_event(events[i].data.u64);
    BP_KEEPS_VALID(*this);
    const uint64_t now_ns = monotonic_ns();
    listener_.resume_if_due(now_ns);
    for (LinkTalk& talk : parts_.talks.all()) {
      if (talk.stage == Stage::kHeld) answerer_.answer_hello(talk);
      if (talk.is_handshake() && now_ns >= talk.deadline_ns) give_up(talk, "no answer in time");
    }
    const uint32_t faults = parts_.options.device->fault_count();
    look_at_progress(now_ns);
    for (VerbsLink* link : parts_.links) {
      if (faults != device_faults_) break_link(*link);
      look_after(*link, now_ns);
    }
    device_faults_ = faults;
  }
}

// How long the thread may wait for an event. Handshakes are short, so all share one tick; an
// unreachable peer costs one wake-up for each try.
int LinkConnector::wait_ms() const noexcept {
  BP_DCHECK(is_own_thread());
  for (const LinkTalk& talk : parts_.talks.all()) {
    if (talk.is_handshake()) return kTickMs;
  }
  if (listener_.is_paused()) return kTickMs;
  uint64_t wait_ns = kIdleMs * kNsPerMs;
  const uint64_t now_ns = monotonic_ns();
  for (const VerbsLink* link : parts_.links) {
    const bool link_is_up = is_up(*link);
    if (link_is_up && link->must_break.load(std::memory_order_acquire)) return kTickMs;
    const LinkBackoff& backoff = parts_.backoffs[link->index];
    if (!backoff.is_down() || (!link_is_up && !link->address.has_value())) continue;
    const uint64_t next_ns = backoff.next_ns(link_is_up);
    wait_ns = std::min(wait_ns, next_ns > now_ns ? next_ns - now_ns : kNsPerMs);
  }
  return static_cast<int>(wait_ns / kNsPerMs) + 1;
}

void LinkConnector::handle_event(uint64_t token) noexcept {
  const auto talks = parts_.talks.all();
  BP_DCHECK(is_own_thread() && (token >= LinkEvents::kFirstToken || token < talks.size()));
  BP_KEEPS_VALID(*this);
  switch (token) {
    case LinkEvents::kWakeToken: return parts_.events.take_wakes();
    case LinkEvents::kListenerToken: return accept_one();
    case LinkEvents::kDeviceToken: parts_.options.device->take_events(); return;
    case LinkEvents::kManagerToken: return take_manager_events();
    case LinkEvents::kCompletionToken: return parts_.options.loop_bell->ring();
    default: break;
  }
  LinkTalk& talk = talks[token];
  if (talk.stage == Stage::kConnecting) return dialer_.say_hello(talk);
  if (talk.stage != Stage::kFree) read_talk(talk);
}

void LinkConnector::accept_one() noexcept {
  BP_DCHECK(is_own_thread());
  Fd caller = listener_.accept();
  if (caller.is_open()) return answerer_.take_caller(std::move(caller));
  if (listener_.is_paused()) answerer_.drop_strangers(0);
}

void LinkConnector::take_manager_events() noexcept {
  BP_DCHECK(is_own_thread() && parts_.options.is_by_manager);
  using Kind = ConnectionManager::Event::Kind;
  const auto name_of = [this](uint32_t hash) -> const char* {
    for (const VerbsLink* link : parts_.links) {
      if (hash_of_name(link->name.c_str()) == hash) return link->name.c_str();
    }
    return nullptr;
  };
  ConnectionManager::Event event;
  while (parts_.manager.take_event(&event, parts_.options.instance, name_of)) {
    if (event.kind == Kind::kCalled) {
      answerer_.take_call(event);
      continue;
    }
    LinkTalk* talk = parts_.talks.of(*event.call);
    if (talk == nullptr) continue;
    if (event.kind == Kind::kHungUp) {
      give_up(*talk, event.why);
    } else if (event.kind == Kind::kReached && talk->stage == Stage::kConnecting) {
      dialer_.say_hello(*talk);
    } else if (talk->stage == Stage::kAwaitWelcome || talk->stage == Stage::kAwaitReady) {
      talk->record = event.record;
      handle_record(*talk);
    }
  }
}

void LinkConnector::read_talk(LinkTalk& talk) noexcept {
  if (talk.stage == Stage::kHeld) return answerer_.read_held(talk);
  switch (parts_.talks.read(talk)) {
    case LinkTalks::ReadResult::kNothing: return;
    case LinkTalks::ReadResult::kRecord: return handle_record(talk);
    case LinkTalks::ReadResult::kHungUp: return give_up(talk, "it hung up");
  }
}

void LinkConnector::handle_record(LinkTalk& talk) noexcept {
  BP_DCHECK(is_own_thread() && talk.bytes == 0);
  switch (talk.stage) {
    case Stage::kAwaitHello: return answerer_.take_hello(talk);
    case Stage::kAwaitWelcome: return dialer_.take_answer(talk);
    case Stage::kAwaitReady: return answerer_.take_ready(talk);
    default: BP_ASSERT(false);  // no other stage reads
  }
}

void LinkConnector::give_up(LinkTalk& talk, const char* why) noexcept {
  BP_DCHECK(is_own_thread() && talk.stage != Stage::kFree && why != nullptr);
  if (talk.stage == Stage::kAwaitHello) return answerer_.give_up(talk);
  if (talk.is_dialing()) return dialer_.give_up(talk, why);
  VerbsLink* link = talk.link;
  const bool was_up = talk.stage != Stage::kHeld;
  parts_.talks.drop(talk);
  if (was_up) break_link(*link);
}

// The shard reads no clock: so the connector asks it now and then to check that its requests end.
void LinkConnector::look_at_progress(uint64_t now_ns) noexcept {
  BP_DCHECK(is_own_thread() && now_ns >= rung_ns_);
  const bool is_any_up =
      std::ranges::any_of(parts_.links, [](const VerbsLink* link) { return is_up(*link); });
  if (!is_any_up || now_ns - rung_ns_ < kIdleMs * kNsPerMs) return;
  rung_ns_ = now_ns;
  parts_.changes.ring();
}

// If the link is down: hangs up, so that the peer notices; dials, if this end dials.
void LinkConnector::look_after(VerbsLink& link, uint64_t now_ns) noexcept {
  BP_DCHECK(is_own_thread() && link.connector == this);
  LinkBackoff& backoff = parts_.backoff(link);
  const LinkState state = link.state.load(std::memory_order_acquire);
  const bool is_link_up = state == LinkState::kUp;
  // Rings until the shard, which may sleep, has taken the link down.
  if (is_link_up && link.must_break.load(std::memory_order_acquire)) return parts_.changes.ring();
  const bool is_of_use = backoff.note_use(link.has_worked.load(std::memory_order_acquire), now_ns);
  if (is_link_up) {
    if (is_of_use) link.is_given_up.store(false, std::memory_order_release);
    return;
  }
  const bool was_up = backoff.go_down();
  if (LinkTalk* lifeline = parts_.talks.of(link, true)) parts_.talks.drop(*lifeline);
  LinkTalk* talk = parts_.talks.of(link, false);
  if (talk != nullptr && talk->stage == Stage::kAwaitReady) parts_.talks.drop(*talk);
  if (state == LinkState::kLost) return backoff.forget();  // the link is never dialed again
  link.note_cut_off();
  if (link.is_wanted.load(std::memory_order_acquire)) dialer_.look_after(link, was_up, now_ns);
}

}  // namespace bedplate
