// Stream sockets through epoll, for kernels and containers without io_uring.
//
// Edge-triggered: the next poll tries an operation at once; if the socket would block, the
// operation waits for the edge. Operations queue in one list, so callbacks never nest.
#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/forbidden_calls.h"
#include "platform/tail_queue.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {
namespace {

// The purpose of an event, in the low bits of its data beside a pointer; for a watch, beside its
// key in the table of watches.
enum class EpollPurpose : uint64_t { kSocket = 0, kListener = 1, kDoorbell = 2, kWatch = 3 };
constexpr uint64_t kEpollPurposeMask = 3;
constexpr int kEventCountMax = 64;
static_assert(EPOLLIN == POLLIN && EPOLLPRI == POLLPRI && EPOLLOUT == POLLOUT &&
              EPOLLERR == POLLERR && EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP);

class EpollSockets final : public StreamSockets {
 public:
  Result<void> create(const StreamSocketsOptions& options) override;
  const char* name() const noexcept override { return "epoll"; }
  Device* device() noexcept override { return nullptr; }

  void start_listening(StreamListener& listener) noexcept override;
  void stop_listening(StreamListener& listener) noexcept override;
  int attach(StreamSocket& socket) noexcept override;
  void detach(StreamSocket& socket) noexcept override;
  int start_watching(Watch& watch) noexcept override;
  void stop_watching(Watch& watch) noexcept override;
  void receive(StreamSocket& socket) noexcept override;
  void send(StreamSocket& socket) noexcept override;
  void end_receive(StreamSocket& socket) noexcept override;

  uint32_t poll(uint32_t budget) noexcept override;
  void sleep_until(uint64_t deadline_ns) noexcept override;

 private:
  int watch(int fd, uint32_t events, uint64_t name, EpollPurpose purpose) noexcept;
  void wait(int timeout_ms) noexcept;
  uint32_t handle_events() noexcept;
  bool handle(const epoll_event& event) noexcept;
  uint32_t accept_some(StreamListener& listener, uint32_t budget) noexcept;
  void append(SocketOperation& operation) noexcept;
  void attempt(SocketOperation& operation) noexcept;

  Fd epoll_;
  epoll_event events_[kEventCountMax];  // the events of the last wait
  int event_count_ = 0;
  TailQueue<&SocketOperation::next> queue_;  // operations to try
  uint32_t queued_count_ = 0;
};

Result<void> EpollSockets::create(const StreamSocketsOptions& options) {
  options_ = options;
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open() ||
      watch(options.loop->doorbell().event_fd(), EPOLLIN, 0, EpollPurpose::kDoorbell) != 0 ||
      epoll_wait(epoll_.number(), events_, 1, 0) < 0) {
    Error error = error_from_errno("setting up epoll");
    if (!says_forbidden(errno)) return error;
    return set_cure_of_forbidden(&error, "epoll_create1, epoll_ctl or epoll_wait");
  }
  options.loop->own_timers().reserve_more(kListenerCountMax + options.watch_count_max);
  watches_.create(options.watch_count_max, options.plan);
  slow_sends_.create(*options.loop, *options.counters);
  return {};
}

int EpollSockets::watch(int fd, uint32_t events, uint64_t name, EpollPurpose purpose) noexcept {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = name | static_cast<uint64_t>(purpose);
  return epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

void EpollSockets::start_listening(StreamListener& listener) noexcept {
  BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::start_listening");
  set_blocking(listener.fd, false);
  // Level-triggered: a connection that one poll did not accept is reported to the next again.
  const int outcome =
      watch(listener.fd, EPOLLIN, reinterpret_cast<uint64_t>(&listener), EpollPurpose::kListener);
  BP_ASSERT(outcome == 0);
  listener.is_armed = true;
  listener.asker = current_heap_owner();
}

void EpollSockets::stop_listening(StreamListener& listener) noexcept {
  BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::stop_listening");
  if (listener.is_armed) epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, listener.fd, nullptr);
  listener.is_armed = false;
  options_.loop->own_timers().cancel(listener.retry);
}

int EpollSockets::attach(StreamSocket& socket) noexcept {
  BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::attach");
  socket.can_receive = true;  // until an attempt says otherwise
  socket.can_send = true;
  if (const int refused = count_attached(socket); refused != 0) return refused;
  const int outcome = watch(socket.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            reinterpret_cast<uint64_t>(&socket), EpollPurpose::kSocket);
  outcome == 0 ? slow_sends_.attached(socket) : count_detached(socket);
  return outcome;
}

void EpollSockets::detach(StreamSocket& socket) noexcept {
  BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::detach");
  count_detached(socket);
  slow_sends_.detached(socket);
  for (int i = 0; i < event_count_; ++i) {  // the next poll handles the event that ended a sleep
    if (events_[i].data.u64 == reinterpret_cast<uint64_t>(&socket)) {
      events_[i] = events_[--event_count_];
      break;
    }
  }
  epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, socket.fd, nullptr);
}

int EpollSockets::start_watching(Watch& watched) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::start_watching");
  int outcome = watches_.insert(watched);
  if (outcome != 0) return outcome;
  outcome = watch(watched.fd, watched.events, watches_.key_of(watched), EpollPurpose::kWatch);
  if (outcome != 0) watches_.remove(watched);
  return outcome;
}

// An event that ended a sleep, or that follows in this poll, finds no watch any more.
void EpollSockets::stop_watching(Watch& watched) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::stop_watching");
  if (!watched.is_watched()) return;
  epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, watched.fd, nullptr);
  watches_.remove(watched);
}

void EpollSockets::append(SocketOperation& operation) noexcept {
  queue_.push(operation);
  ++queued_count_;
}

void EpollSockets::receive(StreamSocket& socket) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::receive");
  begin_operation(socket.receive, socket, false);
  if (socket.can_receive) append(socket.receive);
}

void EpollSockets::send(StreamSocket& socket) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::send");
  begin_operation(socket.send, socket, true);
  slow_sends_.began(socket);
  if (socket.can_send) append(socket.send);
}

// The next attempt ends it.
void EpollSockets::end_receive(StreamSocket& socket) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::end_receive");
  BP_REQUIRE(socket.receive.is_in_flight,
             "a receive is ended that is not in flight: StreamSockets::end_receive");
  socket.receive.is_ending = true;
  if (socket.can_receive) return;  // it is queued
  socket.can_receive = true;
  append(socket.receive);
}

void EpollSockets::attempt(SocketOperation& operation) noexcept {
  StreamSocket& socket = *operation.socket;
  for (;;) {
    const ssize_t moved = operation.is_send
                              ? sendmsg(socket.fd, &operation.message, MSG_NOSIGNAL | MSG_DONTWAIT)
                              : recvmsg(socket.fd, &operation.message, MSG_DONTWAIT);
    options_.counters->system_calls.add(1);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0 && errno == EAGAIN) {
      (operation.is_send ? socket.can_send : socket.can_receive) = false;
      if (operation.is_ending) finish_operation(operation, -ECANCELED, *options_.counters);
      return;  // the edge queues it again
    }
    if (moved > 0 && !advance(operation, static_cast<uint64_t>(moved))) continue;
    const int64_t result = moved < 0    ? -errno
                           : moved == 0 ? 0
                                        : static_cast<int64_t>(operation.moved_bytes);
    finish_operation(operation, result, *options_.counters);
    return;
  }
}

uint32_t EpollSockets::accept_some(StreamListener& listener, uint32_t budget) noexcept {
  for (uint32_t count = 0; count < budget; ++count) {
    const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    options_.counters->system_calls.add(1);
    if (fd >= 0) {
      hand_over(listener, fd, *options_.counters);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // A level-triggered listener that cannot accept would be reported again and again: pause it.
      stop_listening(listener);
      retry_listening(listener);
    }
    return count;
  }
  return budget;
}

// Returns whether it was the doorbell or a watch.
bool EpollSockets::handle(const epoll_event& event) noexcept {
  void* pointer = reinterpret_cast<void*>(event.data.u64 & ~kEpollPurposeMask);
  switch (static_cast<EpollPurpose>(event.data.u64 & kEpollPurposeMask)) {
    case EpollPurpose::kSocket: {
      auto& socket = *static_cast<StreamSocket*>(pointer);
      constexpr uint32_t kBroken = EPOLLERR | EPOLLHUP;
      if ((event.events & (EPOLLIN | EPOLLRDHUP | kBroken)) != 0 && !socket.can_receive) {
        socket.can_receive = true;
        if (socket.receive.is_in_flight) append(socket.receive);
      }
      if ((event.events & (EPOLLOUT | kBroken)) != 0 && !socket.can_send) {
        socket.can_send = true;
        if (socket.send.is_in_flight) append(socket.send);
      }
      break;
    }
    case EpollPurpose::kListener:
      accept_some(*static_cast<StreamListener*>(pointer), kEventCountMax);
      break;
    case EpollPurpose::kDoorbell: options_.loop->doorbell().acknowledge(); return true;
    case EpollPurpose::kWatch: {
      Watch* watched = watches_.find(event.data.u64 & ~kEpollPurposeMask);
      if (watched == nullptr) return false;  // it was stopped, and may be freed
      follow_heap_owner(watched->asker);
      watched->ready(watched->context, event.events);
      return true;
    }
  }
  return false;
}

void EpollSockets::wait(int timeout_ms) noexcept {
  event_count_ = epoll_wait(epoll_.number(), events_, kEventCountMax, timeout_ms);
  options_.counters->system_calls.add(1);
}

// Returns how many watches were called and how often the doorbell was rung. A ring counts as work:
// its reason may lie in a source that this round has polled already, and the eventfd is reset by
// now.
uint32_t EpollSockets::handle_events() noexcept {
  uint32_t happened = 0;
  while (event_count_ > 0) happened += handle(events_[--event_count_]) ? 1 : 0;
  return happened;
}

uint32_t EpollSockets::poll(uint32_t budget) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::poll");
  uint32_t happened = handle_events();  // including those that ended a sleep
  wait(0);
  happened += handle_events();
  // Only operations that are queued now: those that callbacks add wait for the next round.
  const uint32_t count = std::min(budget, queued_count_);
  for (uint32_t i = 0; i < count; ++i) {
    --queued_count_;
    attempt(queue_.pop());
  }
  return count + happened;
}

void EpollSockets::sleep_until(uint64_t deadline_ns) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::sleep_until");
  if (event_count_ > 0) return;  // an edge is reported once: the next poll handles it first
  int timeout_ms = -1;
  if (deadline_ns != TimerQueue::kNever) {
    const uint64_t now = monotonic_ns();
    if (deadline_ns <= now) return;
    const uint64_t wait_ms = (deadline_ns - now + kNsPerMs - 1) / kNsPerMs;
    timeout_ms = static_cast<int>(std::min<uint64_t>(wait_ms, 60'000));
  }
  wait(timeout_ms);
}

}  // namespace

std::unique_ptr<StreamSockets> make_epoll_sockets() { return std::make_unique<EpollSockets>(); }

}  // namespace bedplate
