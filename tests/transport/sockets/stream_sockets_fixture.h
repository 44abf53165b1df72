// Each test of the sockets is one body that runs on both backends, on the real kernel.
//
// A test drives the backend itself, poll by poll, and plays the peer between the polls. Every wait
// is for a condition and has a bound.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "transport/loop/shard_plan.h"
#include "transport/sockets/stream_sockets.h"

#include "CppUTest/TestHarness.h"

namespace bedplate {

// The byte at `position` of any stream of these tests.
inline std::byte pattern(uint64_t position) {
  return static_cast<std::byte>((position * 131 + position / 251) & 0xff);
}
inline std::vector<std::byte> pattern_bytes(uint64_t from, uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (uint64_t i = 0; i < count; ++i) bytes[i] = pattern(from + i);
  return bytes;
}
inline bool is_pattern(const std::byte* bytes, uint64_t count, uint64_t from) {
  for (uint64_t i = 0; i < count; ++i) {
    if (bytes[i] != pattern(from + i)) return false;
  }
  return true;
}

// A socket of the shard, with the results of its operations.
struct Ours {
  StreamSocket socket;
  std::vector<iovec> receive_pieces;
  std::vector<iovec> send_pieces;
  int64_t received = 0;
  int64_t sent = 0;
  uint32_t receive_count = 0;  // completions
  uint32_t send_count = 0;

  Ours() {
    socket.receive.context = socket.send.context = this;
    socket.receive.completed = [](void* self, int64_t result) noexcept {
      static_cast<Ours*>(self)->received = result;
      ++static_cast<Ours*>(self)->receive_count;
    };
    socket.send.completed = [](void* self, int64_t result) noexcept {
      static_cast<Ours*>(self)->sent = result;
      ++static_cast<Ours*>(self)->send_count;
    };
  }
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;
};

// The connections that a listener accepted.
struct Accepted {
  std::vector<Fd> fds;
  static void take(void* self, int fd) noexcept {
    static_cast<Accepted*>(self)->fds.emplace_back(fd);
  }
};

inline Fd listening_socket(sockaddr_in* address, in_addr_t host = INADDR_LOOPBACK) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(host);
  socklen_t bytes = sizeof *address;
  const bool listens =
      bind(fd.number(), reinterpret_cast<sockaddr*>(address), sizeof *address) == 0 &&
      listen(fd.number(), 512) == 0 &&
      getsockname(fd.number(), reinterpret_cast<sockaddr*>(address), &bytes) == 0;
  CHECK(listens);
  return fd;
}

inline Fd connect_to(const sockaddr_in& address) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(fd.is_open());
  LONGS_EQUAL(0, connect(fd.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  return fd;
}

inline int unread_bytes(int fd) {
  int bytes = -1;
  ioctl(fd, FIONREAD, &bytes);
  return bytes;
}

inline size_t write_now(int fd, const std::byte* bytes, size_t count) {
  const ssize_t wrote = send(fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
  return wrote > 0 ? static_cast<size_t>(wrote) : 0;
}
inline size_t read_now(int fd, std::byte* bytes, size_t count) {
  const ssize_t got = recv(fd, bytes, count, MSG_DONTWAIT);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

class SocketsFixture : public Utest {
 public:
  virtual std::unique_ptr<StreamSockets> make() = 0;

  std::unique_ptr<EventLoop> loop;
  SocketCounters counters;
  ShardPlan* plan = nullptr;
  std::unique_ptr<StreamSockets> sockets;
  Ours ours;
  Fd ours_fd;
  Fd peer;
  int fd_count_before = 0;
  rlimit files_before = {};

  // Descriptors that are open in this process.
  static int count_fds() {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0;
    return count;
  }

  void setup() override {
    fd_count_before = count_fds();
    loop = std::make_unique<EventLoop>();
    getrlimit(RLIMIT_NOFILE, &files_before);
    CHECK(loop->create({}).ok());
    sockets = make();
  }

  void teardown() override {
    setrlimit(RLIMIT_NOFILE, &files_before);
    // Operations that are still in flight end before their memory does.
    if (ours_fd.is_open()) {
      sockets->abort(ours.socket);
      run_until(
          [&] { return !ours.socket.receive.is_in_flight && !ours.socket.send.is_in_flight; });
      sockets->detach(ours.socket);
    }
    sockets.reset();
    ours_fd.close();
    peer.close();
    loop.reset();
    LONGS_EQUAL(fd_count_before, count_fds());
  }

  bool is_available() {
    StreamSocketsOptions options;
    options.socket_count_max = 64;
    if (plan != nullptr) options.watch_count_max = plan->planned(ShardItem::kWatches);
    options.loop = loop.get();
    options.counters = &counters;
    options.plan = plan;
    return sockets->create(options).ok();
  }

  // One round of the loop. Sleeps for a short time if there is no work.
  void pump() {
    const uint64_t now = loop->look_at_clock();
    const uint32_t expired_count = loop->timers().expire(now) + loop->own_timers().expire(now);
    if (expired_count + sockets->poll(64) == 0) {
      sockets->sleep_until(std::min(now + kNsPerMs, loop->own_timers().next_deadline_ns()));
    }
  }

  template <typename Condition>
  bool run_until(Condition condition) {
    const uint64_t end = monotonic_ns() + test::kPatienceNs;
    while (!condition()) {
      if (monotonic_ns() > end) return false;
      pump();
    }
    return true;
  }

  void attach(Ours& which, int fd) {
    which.socket.fd = fd;
    LONGS_EQUAL(0, sockets->attach(which.socket));
  }

  void connect_pair() {
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    ours_fd = Fd(fds[0]);
    peer = Fd(fds[1]);
    attach(ours, fds[0]);
  }

  void connect_tcp() {
    sockaddr_in address;
    const Fd listener = listening_socket(&address);
    peer = connect_to(address);
    ours_fd = Fd(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    CHECK(ours_fd.is_open());
    attach(ours, ours_fd.number());
  }

  void receive(Ours& which, std::byte* to, size_t bytes, uint64_t min_bytes = 1) {
    which.receive_pieces = {{to, bytes}};
    start_receive(which, min_bytes);
  }
  void start_receive(Ours& which, uint64_t min_bytes) {
    which.socket.receive.pieces = which.receive_pieces.data();
    which.socket.receive.piece_count = static_cast<uint32_t>(which.receive_pieces.size());
    which.socket.receive.min_bytes = min_bytes;
    sockets->receive(which.socket);
  }
  void send(Ours& which, std::byte* from, size_t bytes) {
    which.send_pieces = {{from, bytes}};
    start_send(which);
  }
  void start_send(Ours& which) {
    which.socket.send.pieces = which.send_pieces.data();
    which.socket.send.piece_count = static_cast<uint32_t>(which.send_pieces.size());
    sockets->send(which.socket);
  }
};

// The groups of both backends; BODIES is a fixture with a member function for each test.
#define BP_GROUPS_OF_BOTH_BACKENDS(theme, BODIES)                                   \
  TEST_GROUP_BASE(Uring##theme, BODIES){std::unique_ptr<StreamSockets> make()       \
                                            override{return make_uring_sockets();   \
  }                                                                                 \
  }                                                                                 \
  ;                                                                                 \
  TEST_GROUP_BASE(Epoll##theme, BODIES) {                                           \
    std::unique_ptr<StreamSockets> make() override { return make_epoll_sockets(); } \
  }

#define BP_BOTH_BACKENDS(theme, sentence, ...)                      \
  TEST(Uring##theme, sentence) {                                    \
    if (!is_available()) BP_SKIP("io_uring is not available here"); \
    __VA_ARGS__;                                                    \
  }                                                                 \
  TEST(Epoll##theme, sentence) {                                    \
    CHECK(is_available());                                          \
    __VA_ARGS__;                                                    \
  }

}  // namespace bedplate
