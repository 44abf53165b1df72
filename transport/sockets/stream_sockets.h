// Stream sockets of one shard: accept, receive, send, each completing by a callback.
//
// Two backends implement it: io_uring (one io_uring_enter for a batch of everything) and epoll. The
// data moves straight between the socket and the caller's memory; nothing is copied, buffered or
// allocated here. A socket has at most one receive and one send in flight at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <sys/socket.h>
#include <sys/uio.h>

#include "transport/files/files.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/watch.h"
#include "transport/registration.h"
#include "transport/sockets/slow_sends.h"
#include "transport/sockets/socket_counters.h"

namespace bedplate {

class ShardPlan;
struct StreamSocket;
class StreamSockets;

// One receive or one send. The caller fills in the first part and keeps it, and the memory that it
// points at, unchanged until `completed` is called. Any memory will do; the pool's is registered.
struct SocketOperation {
  // The memory to send from or to receive into. The backend advances it as bytes move.
  iovec* pieces = nullptr;
  uint32_t piece_count = 0;  // at least 1
  // A receive completes once this many bytes have moved; at least 1. A send completes with all
  // bytes of its pieces, and sets this to their number.
  uint64_t min_bytes = 1;
  // Called on the shard, never from within receive() or send(). `result`: how many bytes moved;
  // 0: the peer has closed (receive only); negative: -errno.
  void (*completed)(void* context, int64_t result) noexcept = nullptr;
  void* context = nullptr;

  bool is_in_flight = false;  // the backend's, as are the fields below; anybody may read it
  bool is_send = false;
  bool is_ending = false;       // end_receive() was called
  uint16_t empty_attempts = 0;  // attempts in a row that moved nothing
  HeapOwner asker = {};         // the heap owner when it began
  uint64_t moved_bytes = 0;
  msghdr message = {};
  StreamSocket* socket = nullptr;
  SocketOperation* next = nullptr;
};

// A connected stream socket. Ownership: the caller's, at the same address while it is attached.
struct StreamSocket {
  int fd = -1;
  SocketOperation receive;
  SocketOperation send;
  bool can_receive = false;  // epoll's view of readiness
  bool can_send = false;
  // For SlowSends: how many sends have begun; at the last look, the progress of the sends and the
  // kernel's measure of the last one; and how long all of this has been so.
  uint32_t sends = 0;
  HeapOwner asker = {};  // the heap owner when it was attached
  uint64_t seen_progress = 0;
  uint64_t seen_taken = 0;
  uint64_t seen_since_ns = 0;
  StreamSocket* next_attached = nullptr;
  StreamSocket* previous_attached = nullptr;
};

// A listening socket, and the callback for its connections. Ownership: the caller's, as is its
// `fd`; both stay until the sockets are destroyed, since after stop_listening() a connection may
// still be on its way, and is handed over.
struct StreamListener {
  int fd = -1;
  // How long the peer of an accepted connection may be silent (notice_silence); 0: for ever.
  uint64_t silence_ns_max = 0;
  // Called on the shard, from poll(). The callee closes `fd`, the new connection.
  void (*accepted)(void* context, int fd) noexcept = nullptr;
  void* context = nullptr;

  bool is_armed = false;  // the backend's, as are the fields below
  bool is_stopping = false;
  HeapOwner asker = {};  // the heap owner when it began to listen
  Timer retry;
  StreamSockets* backend = nullptr;
};

// Loop, counters and plan outlive the sockets.
struct StreamSocketsOptions {
  uint32_t socket_count_max = 1;          // attached at a time: the sizes of the backend
  uint32_t watch_count_max = 64;          // at a time
  uint32_t file_operation_count_max = 0;  // of all files of the shard, at a time
  EventLoop* loop = nullptr;
  SocketCounters* counters = nullptr;
  // The plan of the shard: no more sockets are attached than it has. nullptr: the sockets are no
  // shard's.
  ShardPlan* plan = nullptr;
};

// Created, used and destroyed on the shard's own thread: a ring belongs to the thread that made it.
// Services use the shard's sockets (ServiceContext::sockets). Nothing is allocated after create().
class StreamSockets : public PollSource, public Sleeper {
 public:
  // Requires: called once, on the shard's own thread, before the seal. Errors (kSystem): the
  // system's; the caller decides whether to use another backend.
  virtual Result<void> create(const StreamSocketsOptions& options) = 0;
  virtual const char* name() const noexcept = 0;  // static: "io_uring", "epoll"
  // The device whose registration lets this backend use the pool, or nullptr if there is none. The
  // caller deregisters everything that it registered with the device before this is destroyed.
  virtual Device* device() noexcept = 0;
  // The part of this backend that carries out operations on files (transport/files/files.h);
  // nullptr: files need a thread. It is closed before this is destroyed.
  virtual FileBackend* file_backend() noexcept { return nullptr; }

  // Accepts connections from now on. Requires: at most 16 listeners at a time. From here on the
  // backend decides whether `fd` blocks. A listener that cannot accept, because descriptors or
  // memory ran out, tries again by itself.
  virtual void start_listening(StreamListener& listener) noexcept = 0;
  virtual void stop_listening(StreamListener& listener) noexcept = 0;

  // Adds a socket. Requires: socket.fd is connected; nothing of it is in flight. Returns 0 or an
  // errno value: ENOSPC, if as many are attached as services plan (ServicePlan::connections); or
  // the kernel's. The fd stays the caller's.
  virtual int attach(StreamSocket& socket) noexcept = 0;
  // Removes a socket. Requires: nothing of it is in flight. The caller closes the fd afterwards.
  virtual void detach(StreamSocket& socket) noexcept = 0;

  // Starts socket.receive, or socket.send. Requires: it is not in flight. With io_uring all sends
  // of an iteration are submitted before its receives: answers first.
  virtual void receive(StreamSocket& socket) noexcept = 0;
  virtual void send(StreamSocket& socket) noexcept = 0;
  // Makes the receive in flight complete soon: as ever if its bytes have come, else with
  // -ECANCELED; bytes that were short of min_bytes are then lost. Requires: it is in flight.
  virtual void end_receive(StreamSocket& socket) noexcept = 0;

  // Calls watch.ready from poll() whenever watch.fd is ready (transport/loop/watch.h). Requires:
  // `watch` is not watched; its descriptor is not attached, and no listener's. Returns 0 or an
  // errno value (WatchTable::insert; or the kernel's). Cost: a look at each watch, and insert()'s;
  // with epoll one system call more.
  virtual int start_watching(Watch& watch) noexcept = 0;
  // Ends a watch: it is not called any more, even if an event is on its way, and the kernel has let
  // go of the descriptor. Does nothing if it is not watched. Requires, if it is watched: the
  // sockets that watch it are not destroyed yet. Cost: one system call; with io_uring none from
  // within its own callback.
  virtual void stop_watching(Watch& watch) noexcept = 0;

  // The loop and the counters that create() was given; they outlive this.
  EventLoop& loop() noexcept { return *options_.loop; }
  SocketCounters& counters() noexcept { return *options_.counters; }

  // Makes the operations in flight on this socket complete soon, with an error or the end of file;
  // their callbacks come from poll(), as ever.
  void abort(StreamSocket& socket) noexcept { ::shutdown(socket.fd, SHUT_RDWR); }

 protected:
  static constexpr uint32_t kListenerCountMax = 16;

  // Calls start_listening again after a while.
  void retry_listening(StreamListener& listener) noexcept;

  // Counts `socket` as attached, for the current heap owner. Returns 0, or ENOSPC: the plan has no
  // room for it, which is logged.
  int count_attached(StreamSocket& socket) noexcept;
  void count_detached(const StreamSocket& socket) noexcept;

  StreamSocketsOptions options_;
  WatchTable watches_;
  SlowSends slow_sends_;

 private:
  uint32_t attached_count_ = 0;
  std::array<uint32_t, kHeapOwnerCountMax> attached_counts_ = {};  // by owner; the sum is above
};

// Makes the two backends, not created yet. The rest of this file is for them.
std::unique_ptr<StreamSockets> make_uring_sockets();
std::unique_ptr<StreamSockets> make_epoll_sockets();

// For both backends: advances the pieces by the `bytes` that moved. Returns true if the operation
// is complete.
bool advance(SocketOperation& operation, uint64_t bytes) noexcept;

// For both backends: hands the new connection `fd` to `listener`.
void hand_over(StreamListener& listener, int fd, SocketCounters& counters) noexcept;

// Fills in the message and marks the operation as in flight.
void begin_operation(SocketOperation& operation, StreamSocket& socket, bool is_send) noexcept;

// Marks it as done and calls its callback.
void finish_operation(SocketOperation& operation, int64_t result,
                      SocketCounters& counters) noexcept;

}  // namespace bedplate
