#include "transport/verbs/connect/link_connector.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/forbidden_calls.h"
#include "platform/log.h"
#include "platform/random_bytes.h"

namespace bedplate {
namespace {

constexpr int kTickMs = 5;  // while it waits for something that has no event
constexpr uint64_t kIdleMs = 1000;

}  // namespace

bool VerbsLink::is_valid() const noexcept {
  const LinkState now = state.load(std::memory_order_acquire);
  if (now == LinkState::kDown && queue_pair.number() == 0) return false;
  if (can_send.load(std::memory_order_acquire) && is_connecting.load(std::memory_order_acquire)) {
    return false;
  }
  if (now != LinkState::kUp) return true;
  if (peer_instance == 0 || !is_wanted.load(std::memory_order_relaxed)) return false;
  if (packet_number > kPacketNumberMask || peer.packet_number > kPacketNumberMask) return false;
  return is_mtu(mtu) && is_mtu(peer.mtu) && peer.number <= kPacketNumberMask && peer.reads_max > 0;
}

bool LinkConnector::is_valid() const noexcept {
  uint64_t stranger_count = 0;
  uint32_t call_count = 0;
  for (const Talk& talk : talks_) {
    if (!is_valid(talk)) return false;
    call_count += talk.call != nullptr;
    stranger_count += talk.stage == Stage::kAwaitHello;
  }
  if (stranger_count > kStrangerCountMax || told_host_count_ > kToldHostCountMax) return false;
  if (accept_ns_ != 0 && !listener_.is_open()) return false;
  if (call_count != manager_.call_count() || !manager_.is_valid()) return false;
  if (refused_.load(std::memory_order_relaxed) < told_host_count_) return false;
  if (links_.size() != dialing_.size()) return false;
  return std::all_of(links_.begin(), links_.end(),
                     [this](const VerbsLink* link) { return is_valid(*link); });
}

bool LinkConnector::is_valid(const Talk& talk) const noexcept {
  const bool is_bound = talk.stage != Stage::kFree && talk.stage != Stage::kAwaitHello;
  const int carrier_count = talk.fd.is_open() + (talk.call != nullptr);
  if (carrier_count != (talk.stage != Stage::kFree)) return false;
  if (is_bound != (talk.link != nullptr) || talk.bytes >= sizeof talk.record) return false;
  if (talk.stage == Stage::kFree) return true;
  if ((talk.call != nullptr) != options_.is_by_manager) return false;
  const bool is_lifeline = talk.stage == Stage::kLifeline;
  if (!is_lifeline && talk.deadline_ns == 0) return false;  // it would never be given up
  if (!is_bound) return true;
  if (is_lifeline && talk.bytes > 0) return false;
  if (talk.stage == Stage::kHeld && !is_held_well(talk)) return false;
  if (talk_of(*talk.link, is_lifeline) != &talk) return false;  // there is another one
  const bool was_up = is_lifeline || talk.stage == Stage::kAwaitReady;
  if (was_up && talk.link->peer_instance == 0) return false;
  const LinkState state = talk.link->state.load(std::memory_order_acquire);
  const bool is_ours = talk.stage == Stage::kConnecting || talk.stage == Stage::kAwaitWelcome;
  if (is_ours && !talk.link->address.has_value()) return false;
  return !is_ours || state == LinkState::kDown || state == LinkState::kCutOff;
}

bool LinkConnector::is_held_well(const Talk& talk) const noexcept {
  return talk.bytes == 0 && check_record(talk.record, HandshakeKind::kHello) == Refusal::kNone &&
         link_named(talk.record.name) == talk.link;
}

bool LinkConnector::is_valid(const VerbsLink& link) const noexcept {
  const Dialing& dial_state = dialing_[link.place];
  const uint64_t backoff_ns_max =
      std::max(options_.timing.backoff_ns_min, options_.timing.backoff_ns_max);
  if (links_[link.place] != &link || link.connector != this || !link.is_valid()) return false;
  if (dial_state.backoff_ns > backoff_ns_max) return false;
  const uint64_t backoff_ns_min =
      std::min(options_.timing.backoff_ns_min, options_.timing.backoff_ns_max);
  if (dial_state.down_since_ns != 0 && dial_state.backoff_ns < backoff_ns_min) return false;
  if (dial_state.tell_pause_ns > options_.timing.tell_ns_max) return false;
  // Read in this order: must_break is set first, and then the shard takes the link down.
  if (link.must_break.load(std::memory_order_acquire)) return true;
  if (link.state.load(std::memory_order_acquire) != LinkState::kUp) return true;
  const Talk* talk = talk_of(link, false);
  return talk_of(link, true) != nullptr || (talk != nullptr && talk->stage == Stage::kAwaitReady);
}

Result<void> LinkConnector::start(const LinkConnectorOptions& options,
                                  std::vector<VerbsLink*> links) {
  BP_ASSERT(!is_running_ && options.instance != 0 && options.bell != nullptr);
  BP_ASSERT(options.device != nullptr);
  BP_DCHECK(std::has_single_bit(options.window) && options.message_bytes > 0);
  BP_DCHECK(options.timing.backoff_ns_min > 0 && options.timing.answer_ns_max > 0);
  options_ = options;
  links_ = std::move(links);
  dialing_.assign(links_.size(), {});
  talks_ = std::vector<Talk>(socket_count_max(links_.size()));
  for (VerbsLink* link : links_) {
    link->connector = this;
    if (!link->address.has_value()) continue;
    std::snprintf(dialing(*link).address, sizeof Dialing::address, "%s",
                  link->address->text().c_str());
  }
  device_faults_ = options_.device->fault_count();
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  BP_TRY(listen());
  // Makes its thread's system calls once here: an error can tell that a profile forbids them.
  epoll_event event = {};
  const bool is_watched =
      epoll_.is_open() && epoll_wait(epoll_.number(), &event, 1, 0) == 0 && wake_.is_open() &&
      watch(wake_.number(), EPOLLIN, kWakeToken) &&
      watch(options_.device->event_fd(), EPOLLIN, kDeviceToken) &&
      (!listener_.is_open() || watch(listener_.number(), EPOLLIN, kListenerToken)) &&
      (!manager_.is_open() || watch(manager_.event_fd(), EPOLLIN, kManagerToken)) &&
      (options_.loop_bell == nullptr || options_.completion_fd < 0 ||
       // Edges: the shard reads it, this thread only rings.
       watch(options_.completion_fd, EPOLLIN | EPOLLET, kCompletionToken));
  if (!is_watched) {
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

void LinkConnector::stop() noexcept {
  if (!is_running_) return;
  must_stop_.store(true, std::memory_order_release);
  wake();
  thread_.join();
  is_running_ = false;
  for (Talk& talk : talks_) drop(talk);
  talks_.clear();
  listener_.close();
}

void LinkConnector::wake() noexcept {
  const uint64_t one = 1;
  // It fails only when it is readable already.
  [[maybe_unused]] const ssize_t written = write(wake_.number(), &one, sizeof one);
}

void LinkConnector::ring() noexcept {
  changes_.fetch_add(1, std::memory_order_release);  // pairs with changes()
  options_.bell->ring();
  if (options_.loop_bell != nullptr) options_.loop_bell->ring();
}

void LinkConnector::run() noexcept {
  const ThreadOwner::Hold hold(owner_);
  while (!must_stop_.load(std::memory_order_acquire)) {
    epoll_event events[16];
    const int count = epoll_wait(epoll_.number(), events, std::size(events), wait_ms());
    for (int i = 0; i < count; ++i) handle_event(events[i].data.u64);
    BP_KEEPS_VALID(*this);
    const uint64_t now_ns = monotonic_ns();
    if (accept_ns_ != 0 && now_ns >= accept_ns_) listen_again(true);
    for (Talk& talk : talks_) {
      if (talk.stage == Stage::kHeld) answer_hello(talk);
      if (talk.stage == Stage::kFree || talk.stage == Stage::kLifeline) continue;
      if (now_ns >= talk.deadline_ns) give_up(talk, "no answer in time");
    }
    const uint32_t faults = options_.device->fault_count();
    look_at_progress(now_ns);
    for (VerbsLink* link : links_) {
      if (faults != device_faults_) break_link(*link);
      look_after(*link, now_ns);
    }
    device_faults_ = faults;
  }
}

// The shard reads no clock: so it is asked now and then to check that its posted requests end.
void LinkConnector::look_at_progress(uint64_t now_ns) noexcept {
  BP_DCHECK(is_own_thread() && now_ns >= rung_ns_);
  const bool is_any_up = std::any_of(links_.begin(), links_.end(), [](const VerbsLink* link) {
    return link->state.load(std::memory_order_acquire) == LinkState::kUp;
  });
  if (!is_any_up || now_ns - rung_ns_ < kIdleMs * kNsPerMs) return;
  rung_ns_ = now_ns;
  ring();
}

// How long the thread may wait for an event. Handshakes are short, so one tick serves them all; an
// unreachable peer costs a wake-up for each try.
int LinkConnector::wait_ms() const noexcept {
  BP_DCHECK(is_own_thread());
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
    const uint64_t next_ns = is_up ? one.up_since_ns + options_.timing.backoff_ns_max : one.next_ns;
    wait_ns = std::min(wait_ns, next_ns > now_ns ? next_ns - now_ns : kNsPerMs);
  }
  return static_cast<int>(wait_ns / kNsPerMs) + 1;
}

void LinkConnector::handle_event(uint64_t token) noexcept {
  BP_DCHECK(is_own_thread() && (token >= kManagerToken || token < talks_.size()));
  BP_KEEPS_VALID(*this);
  if (token == kWakeToken) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = read(wake_.number(), &count, sizeof count);
  } else if (token == kListenerToken) {
    accept_one();
  } else if (token == kDeviceToken) {
    options_.device->take_events();
  } else if (token == kManagerToken) {
    take_manager_events();
  } else if (token == kCompletionToken) {
    options_.loop_bell->ring();
  } else if (Talk& talk = talks_[token]; talk.stage == Stage::kConnecting) {
    say_hello(talk);
  } else if (talk.stage != Stage::kFree) {
    read_talk(talk);
  }
}

void LinkConnector::handle_record(Talk& talk) noexcept {
  BP_DCHECK(is_own_thread() && talk.bytes == 0);
  switch (talk.stage) {
    case Stage::kAwaitHello: return take_hello(talk);
    case Stage::kAwaitWelcome: return take_welcome(talk);
    case Stage::kAwaitReady: {
      BP_ASSERT(talk.link != nullptr);
      VerbsLink& link = *talk.link;
      if (check_record(talk.record, HandshakeKind::kReady) != Refusal::kNone) {
        drop(talk);
        return break_link(link);
      }
      enter(talk, Stage::kLifeline);
      return come_up(link);
    }
    default: BP_ASSERT(false);  // no other stage reads
  }
}

// If the link is down: hangs up, so that the peer knows; dials, if that is our part.
void LinkConnector::look_after(VerbsLink& link, uint64_t now_ns) noexcept {
  BP_DCHECK(is_own_thread() && link.connector == this);
  const LinkState state = link.state.load(std::memory_order_acquire);
  if (state == LinkState::kUp) {
    // Rings until the shard, which may sleep, has taken it down.
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
  if (state == LinkState::kLost) {
    dial_state.down_since_ns = 0;  // nothing more is ever to be done for it
    return;
  }
  note_cut_off(link);
  if (!link.is_wanted.load(std::memory_order_acquire)) return;
  const bool is_new = dial_state.down_since_ns == 0;
  if (is_new) {
    dial_state.down_since_ns = now_ns;
    dial_state.next_ns = now_ns;
    dial_state.backoff_ns = options_.timing.backoff_ns_min;
    dial_state.tell_ns = dial_state.tell_pause_ns = 0;
  }
  // Another instance of a peer that was cut off may come up.
  const bool is_cut_off = state == LinkState::kCutOff;
  if (is_cut_off) dial_state.backoff_ns = options_.timing.backoff_ns_max;
  if (is_new ? is_cut_off : was_up) delay_next(dial_state);
  if (now_ns - dial_state.down_since_ns > options_.timing.give_up_ns) {
    link.is_given_up.store(true, std::memory_order_release);
  }
  if (link.address.has_value() && now_ns >= dial_state.next_ns && talk_of(link, false) == nullptr) {
    dial(link, now_ns);
  }
}

// Whether the link has been up and of use: until then its trouble is not forgotten. So a link that
// breaks as soon as it is up is dialed as seldom as one that never comes up.
bool LinkConnector::has_been_of_use(const VerbsLink& link, uint64_t now_ns) const noexcept {
  const uint64_t up_since_ns = dialing_[link.place].up_since_ns;
  return up_since_ns != 0 && (link.has_worked.load(std::memory_order_acquire) ||
                              now_ns - up_since_ns >= options_.timing.backoff_ns_max);
}

void LinkConnector::back_off(VerbsLink& link, const char* why, const char* cure) noexcept {
  BP_DCHECK(is_own_thread() && link.connector == this && why != nullptr);
  Dialing& state = dialing(link);
  if (cure == nullptr) {
    cure = "see whether it is started and listens there";
    if (options_.is_by_manager) {
      cure = options_.device->quirks().loses_manager
                 ? "see whether it is started and listens there, by rdma_cm too; where the "
                   "interface of soft RoCE was down at either, make its link anew (rdma link "
                   "delete, add)"
                 : "see whether it is started and listens there, by rdma_cm too";
    }
  }
  if (const uint64_t now_ns = monotonic_ns(); now_ns >= state.tell_ns) {
    BP_LOG_WARNING("verbs: connecting to %s at %s: %s; trying on; %s", link.name.c_str(),
                   state.address, why, cure);
    const LinkTiming& timing = options_.timing;
    state.tell_pause_ns =
        std::clamp(2 * state.tell_pause_ns, timing.tell_ns_min, timing.tell_ns_max);
    state.tell_ns = now_ns + state.tell_pause_ns;
  }
  delay_next(state);
}

void LinkConnector::delay_next(Dialing& state) noexcept {
  BP_DCHECK(state.down_since_ns != 0 || state.up_since_ns != 0);
  state.next_ns = monotonic_ns() + state.backoff_ns;
  state.backoff_ns = std::min(2 * state.backoff_ns, options_.timing.backoff_ns_max);
}

LinkConnector::Talk* LinkConnector::free_talk() noexcept {
  for (Talk& talk : talks_) {
    if (talk.stage == Stage::kFree) return &talk;
  }
  return nullptr;
}

LinkConnector::Talk* LinkConnector::talk_of(const VerbsLink& link, bool is_lifeline) noexcept {
  return const_cast<Talk*>(std::as_const(*this).talk_of(link, is_lifeline));
}

const LinkConnector::Talk* LinkConnector::talk_of(const VerbsLink& link,
                                                  bool is_lifeline) const noexcept {
  for (const Talk& talk : talks_) {
    if (talk.stage != Stage::kFree && talk.link == &link &&
        (talk.stage == Stage::kLifeline) == is_lifeline) {
      return &talk;
    }
  }
  return nullptr;
}

VerbsLink* LinkConnector::link_named(const char* name) const noexcept {
  for (VerbsLink* link : links_) {
    if (link->name == name) return link;
  }
  return nullptr;
}

void LinkConnector::tell_once(const char* host, const char* why) noexcept {
  BP_DCHECK(is_own_thread() && host != nullptr);
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
