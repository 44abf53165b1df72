// Stream sockets through io_uring: one io_uring_enter submits everything of one loop iteration, and
// brings the completions.
//
// The kernel does deferred work only when this thread asks (DEFER_TASKRUN), and a flag in shared
// memory says that there is some (TASKRUN_FLAG), so an idle loop spins without a system call.
//
// Invariants, which is_valid() looks at around each round: 1. A postponed receive is in flight, and
// postponed once. 2. A socket has at most kHotAttempts failed attempts in a row. And: 3. The kernel
// has one request for each armed watch and listener, and no other (arm, handle_watch,
// handle_accept). 4. An operation that the kernel has is in flight (submit, handle_operation).
#include <cerrno>
#include <cstring>

#include <liburing.h>
#include <poll.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/tail_queue.h"
#include "transport/sockets/stream_sockets.h"
#include "transport/uring/uring_device.h"
#include "transport/uring/uring_files.h"

namespace bedplate {
namespace {

// The purpose of a completion, in the low bits of user_data beside a pointer.
enum class Purpose : uint64_t {
  kOperation = 0,
  kListener = 1,
  kDoorbell = 2,
  kCancel = 3,
  kWatch = 4,  // beside a key of the table of watches
  kFile = 7,   // beside an operation (UringFiles)
};
constexpr uint64_t kPurposeMask = 7;
static_assert(alignof(FileOperation) > kPurposeMask);
static_assert(alignof(SocketOperation) > kPurposeMask && alignof(StreamListener) > kPurposeMask);

// A socket that was just read is tried again this often before the kernel watches it. Watching
// costs the peer: each of its sends must call back into the ring. While both sides are busy neither
// pays for that, and an attempt is part of the one io_uring_enter of its iteration.
//
// A failed attempt delays all other requests of its iteration. So with many sockets each is tried
// less often: together they miss about as often as kCheapMisses alone would.
constexpr uint16_t kHotAttempts = 32;
constexpr uint32_t kCheapMisses = 8;

struct RingCompletion {
  uint64_t user_data;
  int32_t result;
  bool has_more;  // a multishot request that stays armed
};

class UringSockets final : public StreamSockets {
 public:
  UringSockets() noexcept
      : device_(ring_), files_(ring_, static_cast<uint64_t>(Purpose::kFile), kPurposeMask) {}
  ~UringSockets() override {
    if (is_created_) io_uring_queue_exit(&ring_);
  }

  Result<void> create(const StreamSocketsOptions& options) override;
  const char* name() const noexcept override { return "io_uring"; }
  Device* device() noexcept override { return &device_; }
  FileBackend* file_backend() noexcept override { return &files_; }

  void start_listening(StreamListener& listener) noexcept override;
  void stop_listening(StreamListener& listener) noexcept override;
  int attach(StreamSocket& socket) noexcept override {
    BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::attach");
    const int outcome = count_attached(socket);
    if (outcome == 0) slow_sends_.attached(socket);
    return outcome;
  }
  void detach(StreamSocket& socket) noexcept override {
    BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::detach");
    count_detached(socket);
    slow_sends_.detached(socket);
  }
  int start_watching(Watch& watch) noexcept override;
  void stop_watching(Watch& watch) noexcept override;
  void receive(StreamSocket& socket) noexcept override;
  void send(StreamSocket& socket) noexcept override;
  void end_receive(StreamSocket& socket) noexcept override;

  uint32_t poll(uint32_t budget) noexcept override;
  void sleep_until(uint64_t deadline_ns) noexcept override;

  bool is_valid() const noexcept;

 private:
  io_uring_sqe* next_entry(void* pointer, Purpose purpose) noexcept;
  void submit(SocketOperation& operation) noexcept;
  void postpone(SocketOperation& operation) noexcept;
  void submit_postponed() noexcept;
  void arm_doorbell() noexcept;
  void arm(StreamListener& listener) noexcept;
  void arm(Watch& watch) noexcept;
  bool handle(const RingCompletion& completion) noexcept;
  bool handle_operation(SocketOperation& operation, int32_t result) noexcept;
  void handle_accept(StreamListener& listener, int32_t result, bool has_more) noexcept;
  bool handle_watch(uint64_t key, int32_t result) noexcept;

  io_uring ring_ = {};
  bool is_created_ = false;
  bool is_falling_asleep_ = false;
  TailQueue<&SocketOperation::next> postponed_;  // receives that are not submitted yet
  uint32_t misses_ = 0;                          // failed attempts in this poll
  uint32_t hot_attempts_ = kHotAttempts;
  UringDevice device_;
  UringFiles files_;
};

Error setup_error(int outcome) noexcept {
  errno = -outcome;
  Error error = error_from_errno("setting up io_uring");
  switch (-outcome) {
    case ENOSYS:
    case EPERM:
      return error.set_cure("the kernel or the container forbids io_uring: allow it (sysctl "
                            "kernel.io_uring_disabled=0), or set [event_loop] sockets = \"epoll\"");
    case EINVAL:
      return error.set_cure("use Linux 6.1 or newer, or set [event_loop] sockets = \"epoll\"");
    default: return error.set_cure("set [event_loop] sockets = \"epoll\"");
  }
}

bool UringSockets::is_valid() const noexcept {
  const auto is_in_flight = [](const SocketOperation& one) {
    return one.is_in_flight && one.socket != nullptr;
  };
  return hot_attempts_ <= kHotAttempts &&
         postponed_.count(2 * size_t{options_.socket_count_max}, is_in_flight);
}

Result<void> UringSockets::create(const StreamSocketsOptions& options) {
  BP_ASSERT(!is_created_ && options.loop != nullptr && options.counters != nullptr);
  options_ = options;
  files_.attach(*options.loop, options.counters->system_calls);
  io_uring_params parameters = {};
  parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                     IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE |
                     IORING_SETUP_CLAMP;
  // A receive and a send for each socket; a full queue is submitted early, so more would not help.
  const uint32_t entries = std::min(2 * options.socket_count_max + options.watch_count_max +
                                        options.file_operation_count_max + 16,
                                    4096U);
  parameters.cq_entries = 4 * entries;
  const int outcome = io_uring_queue_init_params(entries, &ring_, &parameters);
  if (outcome != 0) return setup_error(outcome);
  is_created_ = true;
  BP_TRY(try_ring(ring_));
  BP_TRY(hold_quiet_pipe(ring_));
  // A registered ring descriptor saves a look-up at each call; optional.
  io_uring_register_ring_fd(&ring_);
  options.loop->own_timers().reserve_more(kListenerCountMax + options.watch_count_max);
  watches_.create(options.watch_count_max, options.plan);
  slow_sends_.create(*options.loop, *options.counters);
  arm_doorbell();
  return {};
}

io_uring_sqe* UringSockets::next_entry(void* pointer, Purpose purpose) noexcept {
  io_uring_sqe* entry = &next_ring_entry(ring_, options_.counters->system_calls);
  entry->user_data = reinterpret_cast<uint64_t>(pointer) | static_cast<uint64_t>(purpose);
  return entry;
}

void UringSockets::arm_doorbell() noexcept {
  io_uring_sqe* entry = next_entry(nullptr, Purpose::kDoorbell);
  const uint64_t user_data = entry->user_data;
  io_uring_prep_poll_multishot(entry, options_.loop->doorbell().event_fd(), POLLIN);
  entry->user_data = user_data;
}

void UringSockets::arm(StreamListener& listener) noexcept {
  BP_DCHECK(!listener.is_armed && !listener.is_stopping);  // else it accepts each connection twice
  io_uring_sqe* entry = next_entry(&listener, Purpose::kListener);
  const uint64_t user_data = entry->user_data;
  io_uring_prep_multishot_accept(entry, listener.fd, nullptr, nullptr, SOCK_CLOEXEC);
  entry->user_data = user_data;
  listener.is_armed = true;
}

void UringSockets::start_listening(StreamListener& listener) noexcept {
  BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::start_listening");
  // The ring waits for connections itself, unless a flag on the descriptor (say, one passed to us)
  // forbids it.
  set_blocking(listener.fd, true);
  listener.is_stopping = false;
  listener.asker = current_heap_owner();
  arm(listener);
}

void UringSockets::stop_listening(StreamListener& listener) noexcept {
  BP_REQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::stop_listening");
  listener.is_stopping = true;
  options_.loop->own_timers().cancel(listener.retry);
  if (!listener.is_armed) return;
  io_uring_sqe* entry = next_entry(nullptr, Purpose::kCancel);
  const uint64_t user_data = entry->user_data;
  io_uring_prep_cancel64(
      entry, reinterpret_cast<uint64_t>(&listener) | static_cast<uint64_t>(Purpose::kListener), 0);
  entry->user_data = user_data;
}

// One event for each request, then the next request. That request checks by itself whether the
// descriptor is still ready, and costs no further system call. A multishot request reports changes
// only: it would miss bytes that a callback left behind.
void UringSockets::arm(Watch& watch) noexcept {
  BP_DCHECK(watch.is_watched() && !watches_.is_armed(watch));
  const uint64_t user_data = watches_.key_of(watch) | static_cast<uint64_t>(Purpose::kWatch);
  io_uring_sqe* entry = next_entry(nullptr, Purpose::kWatch);
  io_uring_prep_poll_add(entry, watch.fd, watch.events);
  entry->user_data = user_data;
  watches_.is_armed(watch) = true;
}

int UringSockets::start_watching(Watch& watch) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::start_watching");
  const int outcome = watches_.insert(watch);
  if (outcome == 0) arm(watch);
  return outcome;
}

// The request holds the file open until its completion was fetched, so the peer would not see the
// close. So this fetches it now; the completion waits for a poll, and finds no watch then.
void UringSockets::stop_watching(Watch& watch) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::stop_watching");
  if (!watch.is_watched()) return;
  const uint64_t key = watches_.key_of(watch);
  const bool was_armed = watches_.is_armed(watch);
  watches_.remove(watch);
  if (!was_armed) return;
  io_uring_sqe* entry = next_entry(nullptr, Purpose::kCancel);
  const uint64_t user_data = entry->user_data;
  io_uring_prep_cancel64(entry, key | static_cast<uint64_t>(Purpose::kWatch), 0);
  entry->user_data = user_data;
  io_uring_submit_and_get_events(&ring_);
  options_.counters->system_calls.add(1);
}

// Returns whether a watch was called.
bool UringSockets::handle_watch(uint64_t key, int32_t result) noexcept {
  Watch* watch = watches_.find(key);
  if (watch == nullptr) return false;  // it was stopped, and may be freed
  BP_DCHECK(watches_.is_armed(*watch));
  watches_.is_armed(*watch) = false;
  follow_heap_owner(watch->asker);
  if (result < 0) {
    watches_.remove(*watch);
    watch->ready(watch->context, POLLNVAL);
    return true;
  }
  watch->ready(watch->context, static_cast<uint32_t>(result));
  watch = watches_.find(key);
  if (watch != nullptr) arm(*watch);
  return true;
}

// Submits a receive after everything else of its iteration: sends leave first, and a peer that
// waits for them need not wait until its next bytes are copied as well.
void UringSockets::postpone(SocketOperation& operation) noexcept { postponed_.push(operation); }

void UringSockets::submit_postponed() noexcept {
  while (!postponed_.is_empty()) submit(postponed_.pop());
}

void UringSockets::submit(SocketOperation& operation) noexcept {
  BP_DCHECK(operation.is_in_flight && operation.message.msg_iovlen > 0);
  io_uring_sqe* entry = next_entry(&operation, Purpose::kOperation);
  const uint64_t user_data = entry->user_data;
  msghdr& message = operation.message;
  const iovec& first = message.msg_iov[0];
  const int fd = operation.socket->fd;
  if (operation.is_send) {
    // MSG_WAITALL: the kernel continues by itself after a short send.
    constexpr int kFlags = MSG_NOSIGNAL | MSG_WAITALL;
    if (message.msg_iovlen == 1) {
      io_uring_prep_send(entry, fd, first.iov_base, first.iov_len, kFlags);
    } else {
      io_uring_prep_sendmsg(entry, fd, &message, kFlags);
    }
  } else {
    const bool is_hot =
        operation.is_ending || (!is_falling_asleep_ && operation.empty_attempts < hot_attempts_);
    const int flags = is_hot ? MSG_DONTWAIT : 0;
    if (message.msg_iovlen == 1) {
      io_uring_prep_recv(entry, fd, first.iov_base, first.iov_len, flags);
    } else {
      io_uring_prep_recvmsg(entry, fd, &message, static_cast<unsigned>(flags));
    }
    // Waits for bytes at once, without one more failed attempt.
    if (!is_hot) entry->ioprio |= IORING_RECVSEND_POLL_FIRST;
  }
  entry->user_data = user_data;
}

void UringSockets::receive(StreamSocket& socket) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::receive");
  begin_operation(socket.receive, socket, false);
  postpone(socket.receive);
}

void UringSockets::send(StreamSocket& socket) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::send");
  begin_operation(socket.send, socket, true);
  slow_sends_.began(socket);
  submit(socket.send);
}

// Cancels a receive that waits in the kernel. Any other ends with its next attempt.
void UringSockets::end_receive(StreamSocket& socket) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::end_receive");
  BP_REQUIRE(socket.receive.is_in_flight,
             "a receive is ended that is not in flight: StreamSockets::end_receive");
  socket.receive.is_ending = true;
  io_uring_sqe* entry = next_entry(nullptr, Purpose::kCancel);
  const uint64_t user_data = entry->user_data;
  io_uring_prep_cancel64(entry, reinterpret_cast<uint64_t>(&socket.receive), 0);
  entry->user_data = user_data;
}

// Returns whether anything happened.
bool UringSockets::handle_operation(SocketOperation& operation, int32_t result) noexcept {
  BP_DCHECK(operation.is_in_flight);
  if (result == -EAGAIN && operation.is_ending) result = -ECANCELED;
  if (result == -EAGAIN) {
    ++operation.empty_attempts;
    ++misses_;
    postpone(operation);
    return false;
  }
  operation.empty_attempts = 0;
  is_falling_asleep_ = false;
  if (result == -EINTR || (result > 0 && !advance(operation, static_cast<uint64_t>(result)))) {
    operation.is_send ? submit(operation) : postpone(operation);
    return true;
  }
  finish_operation(operation, result > 0 ? static_cast<int64_t>(operation.moved_bytes) : result,
                   *options_.counters);
  return true;
}

void UringSockets::handle_accept(StreamListener& listener, int32_t result, bool has_more) noexcept {
  BP_DCHECK(listener.is_armed);
  if (result >= 0) hand_over(listener, result, *options_.counters);
  if (has_more) return;
  listener.is_armed = false;
  if (listener.is_stopping) return;
  if (result >= 0 || result == -ECONNABORTED || result == -EINTR) {
    arm(listener);
  } else {
    retry_listening(listener);
  }
}

bool UringSockets::handle(const RingCompletion& completion) noexcept {
  void* pointer = reinterpret_cast<void*>(completion.user_data & ~kPurposeMask);
  switch (static_cast<Purpose>(completion.user_data & kPurposeMask)) {
    case Purpose::kOperation:
      return handle_operation(*static_cast<SocketOperation*>(pointer), completion.result);
    case Purpose::kListener:
      handle_accept(*static_cast<StreamListener*>(pointer), completion.result, completion.has_more);
      break;
    case Purpose::kDoorbell:
      options_.loop->doorbell().acknowledge();
      if (!completion.has_more) arm_doorbell();
      break;
    case Purpose::kWatch:
      return handle_watch(completion.user_data & ~kPurposeMask, completion.result);
    case Purpose::kCancel: break;
    case Purpose::kFile: files_.handle(completion.user_data, completion.result); break;
  }
  return true;
}

uint32_t UringSockets::poll(uint32_t budget) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::poll");
  BP_KEEPS_VALID(*this);
  submit_postponed();
  const unsigned kernel_flags = __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);
  if (io_uring_sq_ready(&ring_) > 0 ||
      (kernel_flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) {
    io_uring_submit_and_get_events(&ring_);
    options_.counters->system_calls.add(1);
  }
  uint32_t happened = 0;
  misses_ = 0;
  io_uring_cqe* completion = nullptr;
  for (uint32_t i = 0; i < budget && io_uring_peek_cqe(&ring_, &completion) == 0; ++i) {
    // Copies and frees the completion first: the handler may submit, and the kernel needs the slot.
    const RingCompletion copy = {completion->user_data, completion->res,
                                 (completion->flags & IORING_CQE_F_MORE) != 0};
    io_uring_cqe_seen(&ring_, completion);
    happened += handle(copy) ? 1 : 0;
  }
  hot_attempts_ = kHotAttempts * kCheapMisses / std::max(misses_, kCheapMisses);
  return happened;
}

void UringSockets::sleep_until(uint64_t deadline_ns) noexcept {
  BP_DREQUIRE_THREAD(loop().is_own_thread(), "StreamSockets::sleep_until");
  __kernel_timespec wait = {};
  __kernel_timespec* wait_pointer = nullptr;
  if (deadline_ns != TimerQueue::kNever) {
    const uint64_t now = monotonic_ns();
    if (deadline_ns <= now) return;
    wait.tv_sec = static_cast<int64_t>((deadline_ns - now) / kNsPerSecond);
    wait.tv_nsec = static_cast<long long>((deadline_ns - now) % kNsPerSecond);
    wait_pointer = &wait;
  }
  is_falling_asleep_ = true;  // hot attempts come back, and are then watched
  submit_postponed();
  io_uring_cqe* ignored = nullptr;
  io_uring_submit_and_wait_timeout(&ring_, &ignored, 1, wait_pointer, nullptr);
  options_.counters->system_calls.add(1);
}

}  // namespace

std::unique_ptr<StreamSockets> make_uring_sockets() { return std::make_unique<UringSockets>(); }

}  // namespace bedplate
