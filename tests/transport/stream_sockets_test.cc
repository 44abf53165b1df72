// Stream sockets: one body for each test, run with both backends against the real kernel.
//
// The test drives the backend itself, poll by poll, and plays the peer between the polls. Every
// wait is for a condition and has a bound.
#include "transport/stream_sockets.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kBoundNs = 20 * kNsPerSecond;

// The byte at `position` of any stream of these tests.
std::byte pattern(uint64_t position) {
  return static_cast<std::byte>((position * 131 + position / 251) & 0xff);
}
std::vector<std::byte> pattern_bytes(uint64_t from, uint64_t count) {
  std::vector<std::byte> bytes(count);
  for (uint64_t i = 0; i < count; ++i) bytes[i] = pattern(from + i);
  return bytes;
}
bool is_pattern(const std::byte* bytes, uint64_t count, uint64_t from) {
  for (uint64_t i = 0; i < count; ++i) {
    if (bytes[i] != pattern(from + i)) return false;
  }
  return true;
}

// A socket on the shard, and what became of its operations.
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

// What a listener was brought.
struct Accepted {
  std::vector<Fd> fds;
  static void take(void* self, int fd) noexcept {
    static_cast<Accepted*>(self)->fds.emplace_back(fd);
  }
};

Fd listening_socket(sockaddr_in* address) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  *address = {};
  address->sin_family = AF_INET;
  address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof *address;
  const bool listens =
      bind(fd.number(), reinterpret_cast<sockaddr*>(address), sizeof *address) == 0 &&
      listen(fd.number(), 512) == 0 &&
      getsockname(fd.number(), reinterpret_cast<sockaddr*>(address), &bytes) == 0;
  CHECK(listens);
  return fd;
}

Fd connect_to(const sockaddr_in& address) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(fd.is_open());
  LONGS_EQUAL(0, connect(fd.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  return fd;
}

int unread_bytes(int fd) {
  int bytes = -1;
  ioctl(fd, FIONREAD, &bytes);
  return bytes;
}

size_t write_now(int fd, const std::byte* bytes, size_t count) {
  const ssize_t wrote = send(fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
  return wrote > 0 ? static_cast<size_t>(wrote) : 0;
}
size_t read_now(int fd, std::byte* bytes, size_t count) {
  const ssize_t got = recv(fd, bytes, count, MSG_DONTWAIT);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

}  // namespace

class SocketsFixture : public Utest {
 public:
  virtual std::unique_ptr<StreamSockets> make() = 0;

  std::unique_ptr<EventLoop> loop;
  SocketCounters counters;
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
    // What is still in flight ends before its memory does.
    if (ours_fd.is_open()) {
      sockets->abort(ours.socket);
      run_until([&] { return !ours.socket.receive.is_in_flight && !ours.socket.send.is_in_flight; });
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
    options.loop = loop.get();
    options.counters = &counters;
    return sockets->create(options).ok();
  }

  // One round of the loop; sleeps a little while when there is nothing.
  void pump() {
    const uint64_t now = monotonic_ns();
    if (loop->timers().expire(now) + sockets->poll(64) == 0) {
      sockets->sleep_until(std::min(now + kNsPerMs, loop->timers().next_deadline_ns()));
    }
  }

  template <typename Condition>
  bool run_until(Condition condition) {
    const uint64_t end = monotonic_ns() + kBoundNs;
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

  // ---- the bodies ----

  void echo() {
    std::vector<std::byte> buffer(70'000);
    uint64_t position = 0;
    for (const size_t bytes : {1, 28, 4096, 65'536, 3, 70'000}) {
      const auto said = pattern_bytes(position, bytes);
      size_t written = 0;
      receive(ours, buffer.data(), buffer.size(), bytes);
      const uint32_t done = ours.receive_count;
      CHECK(run_until([&] {
        written += write_now(peer.number(), said.data() + written, bytes - written);
        return ours.receive_count == done + 1;
      }));
      LONGS_EQUAL(bytes, ours.received);
      send(ours, buffer.data(), bytes);
      std::vector<std::byte> heard(bytes);
      size_t got = 0;
      CHECK(run_until([&] {
        got += read_now(peer.number(), heard.data() + got, bytes - got);
        return got == bytes && !ours.socket.send.is_in_flight;
      }));
      LONGS_EQUAL(bytes, ours.sent);
      CHECK(heard == said);
      position += bytes;
    }
    CHECK_EQUAL(position, counters.received_bytes.read());
    CHECK_EQUAL(position, counters.sent_bytes.read());
  }

  void scatter_and_gather() {
    connect_pair();
    constexpr size_t kPieces = 100;
    std::vector<std::byte> memory(kPieces * 200);
    uint64_t total = 0;
    for (size_t i = 0; i < kPieces; ++i) {
      const size_t bytes = 1 + i * 37 % 150;
      ours.receive_pieces.push_back({&memory[i * 200], bytes});
      total += bytes;
    }
    ours.send_pieces = ours.receive_pieces;
    const std::vector<iovec> pieces = ours.receive_pieces;  // the operation uses its own up
    start_receive(ours, total);
    const auto said = pattern_bytes(0, total);
    // In bites that end inside of pieces and on their borders.
    size_t written = 0;
    CHECK(run_until([&] {
      written += write_now(peer.number(), &said[written], std::min<size_t>(113, total - written));
      return ours.receive_count == 1;
    }));
    LONGS_EQUAL(total, ours.received);
    uint64_t at = 0;
    for (const iovec& piece : pieces) {
      CHECK(is_pattern(static_cast<std::byte*>(piece.iov_base), piece.iov_len, at));
      at += piece.iov_len;
    }
    start_send(ours);
    CHECK(run_until([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(total, ours.sent);
    std::vector<std::byte> heard(total);
    LONGS_EQUAL(total, read_now(peer.number(), heard.data(), total));
    CHECK(heard == said);
    // Not a byte beside the pieces.
    for (size_t i = 0; i < kPieces; ++i) {
      for (size_t k = pieces[i].iov_len; k < 200; ++k) CHECK(memory[i * 200 + k] == std::byte{});
    }
  }

  void waits_for_min_bytes() {
    connect_pair();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer, 28);
    const auto said = pattern_bytes(0, 33);
    write_now(peer.number(), said.data(), 10);
    CHECK(run_until([&] { return unread_bytes(ours_fd.number()) == 0; }));
    for (int i = 0; i < 10; ++i) pump();
    LONGS_EQUAL(0, ours.receive_count);
    write_now(peer.number(), &said[10], 17);
    CHECK(run_until([&] { return unread_bytes(ours_fd.number()) == 0; }));
    for (int i = 0; i < 10; ++i) pump();
    LONGS_EQUAL(0, ours.receive_count);
    write_now(peer.number(), &said[27], 6);
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(33, ours.received);
    CHECK(is_pattern(buffer, 33, 0));
  }

  // Whoever is called back reads the loop's time, and while the loop sleeps that stands still.
  void calls_nobody_from_within_a_sleep() {
    connect_pair();
    sockaddr_in address;
    const Fd listener_fd = listening_socket(&address);
    Accepted accepted;
    StreamListener listener;
    listener.fd = listener_fd.number();
    listener.accepted = &Accepted::take;
    listener.context = &accepted;
    sockets->start_listening(listener);
    std::byte buffer[8];
    receive(ours, buffer, sizeof buffer);
    for (int i = 0; i < 100; ++i) pump();  // until the kernel has both
    LONGS_EQUAL(0, ours.receive_count);
    const Fd client = connect_to(address);
    const auto said = pattern_bytes(0, 8);
    LONGS_EQUAL(8, write_now(peer.number(), said.data(), 8));
    for (int i = 0; i < 3; ++i) sockets->sleep_until(monotonic_ns() + kNsPerMs);
    LONGS_EQUAL(0, accepted.fds.size());
    LONGS_EQUAL(0, ours.receive_count);
    CHECK(run_until([&] { return ours.receive_count == 1 && accepted.fds.size() == 1; }));
    sockets->stop_listening(listener);
    for (int i = 0; i < 10; ++i) pump();
  }

  void sends_to_a_slow_reader() {
    connect_tcp();
    constexpr size_t kBytes = 8 * kMiB;
    auto said = pattern_bytes(0, kBytes);
    ours.send_pieces = {{said.data(), 16}, {&said[16], kBytes / 2}, {&said[16 + kBytes / 2], 1},
                        {&said[17 + kBytes / 2], kBytes / 2 - 17}};
    start_send(ours);
    std::vector<std::byte> heard(kBytes);
    size_t got = 0;
    size_t bite = 1;
    bool early = false;
    CHECK(run_until([&] {
      early |= ours.send_count == 1 && got + 8 * kMiB <= kBytes;  // no buffer holds all of it
      got += read_now(peer.number(), &heard[got], std::min(bite, kBytes - got));
      bite = bite * 2 % 99'991;
      return got == kBytes && ours.send_count == 1;
    }));
    CHECK(!early);
    LONGS_EQUAL(kBytes, ours.sent);
    CHECK(is_pattern(heard.data(), kBytes, 0));
  }

  void end_of_file() {
    connect_pair();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer);
    const auto said = pattern_bytes(0, 5);
    write_now(peer.number(), said.data(), 5);
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(5, ours.received);
    receive(ours, buffer, sizeof buffer);
    shutdown(peer.number(), SHUT_WR);
    CHECK(run_until([&] { return ours.receive_count == 2; }));
    LONGS_EQUAL(0, ours.received);
    receive(ours, buffer, sizeof buffer);  // it stays so
    CHECK(run_until([&] { return ours.receive_count == 3; }));
    LONGS_EQUAL(0, ours.received);
    send(ours, buffer, 5);  // the other direction is still open
    CHECK(run_until([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(5, ours.sent);
  }

  void end_of_file_before_min_bytes() {
    connect_pair();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer, 28);
    write_now(peer.number(), pattern_bytes(0, 10).data(), 10);
    CHECK(run_until([&] { return unread_bytes(ours_fd.number()) == 0; }));
    peer.close();
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(0, ours.received);
  }

  void reset() {
    connect_tcp();
    std::byte buffer[100];
    receive(ours, buffer, sizeof buffer);
    pump();
    const linger at_once = {1, 0};
    setsockopt(peer.number(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    peer.close();
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(-ECONNRESET, ours.received);
    send(ours, buffer, sizeof buffer);
    CHECK(run_until([&] { return ours.send_count == 1; }));
    LONGS_EQUAL(-EPIPE, ours.sent);  // and no SIGPIPE
  }

  void send_to_a_peer_that_left() {
    connect_pair();
    auto said = pattern_bytes(0, 4 * kMiB);
    send(ours, said.data(), said.size());
    CHECK(run_until([&] { return unread_bytes(peer.number()) > 0; }));
    LONGS_EQUAL(0, ours.send_count);
    peer.close();
    CHECK(run_until([&] { return ours.send_count == 1; }));
    CHECK(ours.sent == -EPIPE || ours.sent == -ECONNRESET);
  }

  void abort_in_flight() {
    connect_pair();
    std::byte buffer[100];
    auto said = pattern_bytes(0, 4 * kMiB);
    receive(ours, buffer, sizeof buffer, 50);
    send(ours, said.data(), said.size());
    write_now(peer.number(), pattern_bytes(0, 10).data(), 10);
    CHECK(run_until([&] {
      return unread_bytes(ours_fd.number()) == 0 && unread_bytes(peer.number()) > 0;
    }));
    LONGS_EQUAL(0, ours.receive_count + ours.send_count);
    sockets->abort(ours.socket);
    CHECK(run_until([&] { return ours.receive_count == 1 && ours.send_count == 1; }));
    CHECK(ours.received <= 0);
    CHECK(ours.sent < 0);
    for (int i = 0; i < 5; ++i) pump();
    LONGS_EQUAL(2, ours.receive_count + ours.send_count);
  }

  void never_calls_back_from_within() {
    connect_pair();
    std::byte buffer[8];
    write_now(peer.number(), pattern_bytes(0, 8).data(), 8);
    receive(ours, buffer, sizeof buffer);
    send(ours, buffer, sizeof buffer);
    LONGS_EQUAL(0, ours.receive_count + ours.send_count);
    CHECK(run_until([&] { return ours.receive_count + ours.send_count == 2; }));
  }

  void accepts_many() {
    sockaddr_in address;
    const Fd fd = listening_socket(&address);
    Accepted accepted;
    StreamListener listener;
    listener.fd = fd.number();
    listener.accepted = &Accepted::take;
    listener.context = &accepted;
    constexpr size_t kCount = 150;
    std::vector<Fd> clients;
    for (size_t i = 0; i < kCount / 2; ++i) clients.push_back(connect_to(address));
    sockets->start_listening(listener);
    for (size_t i = 0; i < kCount / 2; ++i) {
      clients.push_back(connect_to(address));
      if (i % 10 == 0) pump();
    }
    CHECK(run_until([&] { return accepted.fds.size() == kCount; }));
    CHECK_EQUAL(kCount, counters.accepts.read());
    for (const Fd& each : accepted.fds) {
      CHECK((fcntl(each.number(), F_GETFD) & FD_CLOEXEC) != 0);
    }
    sockets->stop_listening(listener);
    CHECK(run_until([&] { return !listener.is_armed; }));
  }

  void stop_and_start_listening() {
    sockaddr_in address;
    const Fd fd = listening_socket(&address);
    Accepted accepted;
    StreamListener listener;
    listener.fd = fd.number();
    listener.accepted = &Accepted::take;
    listener.context = &accepted;
    sockets->stop_listening(listener);  // never started: nothing happens
    sockets->start_listening(listener);
    const Fd first = connect_to(address);
    CHECK(run_until([&] { return accepted.fds.size() == 1; }));
    sockets->stop_listening(listener);
    CHECK(run_until([&] { return !listener.is_armed; }));
    const Fd second = connect_to(address);  // into the backlog
    for (int i = 0; i < 20; ++i) pump();
    LONGS_EQUAL(1, accepted.fds.size());
    sockets->start_listening(listener);
    CHECK(run_until([&] { return accepted.fds.size() == 2; }));
    sockets->stop_listening(listener);
    CHECK(run_until([&] { return !listener.is_armed; }));
  }

  // No descriptor is left but those that are open now.
  void exhaust_descriptors(int any_open_fd) {
    const int next = dup(any_open_fd);  // the lowest that is free
    close(next);
    rlimit low = files_before;
    low.rlim_cur = static_cast<rlim_t>(next);
    LONGS_EQUAL(0, setrlimit(RLIMIT_NOFILE, &low));
  }

  void runs_out_of_descriptors() {
    sockaddr_in address;
    const Fd fd = listening_socket(&address);
    const Fd client = connect_to(address);
    Accepted accepted;
    accepted.fds.reserve(4);
    StreamListener listener;
    listener.fd = fd.number();
    listener.accepted = &Accepted::take;
    listener.context = &accepted;
    exhaust_descriptors(fd.number());
    sockets->start_listening(listener);
    CHECK(run_until([&] { return listener.retry.is_armed(); }));
    LONGS_EQUAL(0, accepted.fds.size());
    // It pauses instead of asking again and again; then it does ask again, in vain.
    const uint64_t first_ns = listener.retry.deadline_ns;
    const uint64_t calls = counters.system_calls.read();
    CHECK(run_until([&] {
      return listener.retry.is_armed() && listener.retry.deadline_ns != first_ns;
    }));
    CHECK(counters.system_calls.read() - calls < 1000);
    LONGS_EQUAL(0, accepted.fds.size());
    LONGS_EQUAL(0, setrlimit(RLIMIT_NOFILE, &files_before));
    CHECK(run_until([&] { return accepted.fds.size() == 1; }));
    // And goes on as ever.
    const Fd another = connect_to(address);
    CHECK(run_until([&] { return accepted.fds.size() == 2; }));
    sockets->stop_listening(listener);
    CHECK(run_until([&] { return !listener.is_armed; }));
  }

  void stops_listening_while_it_pauses() {
    sockaddr_in address;
    const Fd fd = listening_socket(&address);
    const Fd client = connect_to(address);
    Accepted accepted;
    StreamListener listener;
    listener.fd = fd.number();
    listener.accepted = &Accepted::take;
    listener.context = &accepted;
    exhaust_descriptors(fd.number());
    sockets->start_listening(listener);
    CHECK(run_until([&] { return listener.retry.is_armed(); }));
    sockets->stop_listening(listener);
    CHECK(!listener.retry.is_armed());
    CHECK(!listener.is_armed);
    CHECK(loop->timers().next_deadline_ns() == TimerQueue::kNever);
  }

  void random_traffic();
  void woken_by_a_socket();
  void insists();
};

// Some sockets, both directions, random operations and bites, against the simple truth that a
// stream is its positions.
void SocketsFixture::random_traffic() {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  constexpr size_t kSockets = 6;
  constexpr uint64_t kStreamBytes = 400'000;
  struct Stream {
    Ours ours;
    Fd fd, peer;
    uint64_t taken = 0, given = 0, peer_wrote = 0, peer_read = 0;
    uint32_t receives = 0, sends = 0;
    uint64_t min_bytes = 0, asked = 0, sending = 0;
    std::vector<std::byte> in, out;
  };
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < kSockets; ++i) {
    streams.push_back(std::make_unique<Stream>());
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    streams[i]->fd = Fd(fds[0]);
    streams[i]->peer = Fd(fds[1]);
    attach(streams[i]->ours, fds[0]);
  }
  bool good = true;
  // What a finished operation must have done, and the next one.
  const auto turn = [&](Stream& s) {
    Ours& o = s.ours;
    if (s.asked > 0 && !o.socket.receive.is_in_flight) {
      good &= o.receive_count == s.receives;
      good &= o.received >= static_cast<int64_t>(s.min_bytes) &&
              o.received <= static_cast<int64_t>(s.asked);
      good = good && is_pattern(s.in.data(), static_cast<uint64_t>(o.received), s.taken);
      s.taken += static_cast<uint64_t>(std::max<int64_t>(o.received, 0));
      s.asked = 0;
    }
    if (s.sending > 0 && !o.socket.send.is_in_flight) {
      good &= o.send_count == s.sends && o.sent == static_cast<int64_t>(s.sending);
      s.given += s.sending;
      s.sending = 0;
    }
    if (s.asked == 0 && s.taken < kStreamBytes) {
      s.asked = std::min(1 + random() % 30'000, kStreamBytes - s.taken);
      s.min_bytes = 1 + random() % s.asked;
      s.in.assign(s.asked, std::byte{});
      const uint64_t cut = random() % s.asked;
      o.receive_pieces = {{s.in.data(), cut}, {s.in.data() + cut, s.asked - cut}};
      if (cut == 0) o.receive_pieces.erase(o.receive_pieces.begin());
      start_receive(o, s.min_bytes);
      ++s.receives;
    }
    if (s.sending == 0 && s.given < kStreamBytes) {
      s.sending = std::min(1 + random() % 60'000, kStreamBytes - s.given);
      s.out = pattern_bytes(s.given, s.sending);
      send(o, s.out.data(), s.sending);
      ++s.sends;
    }
    const auto bite = pattern_bytes(s.peer_wrote, std::min(random() % 9'000,
                                                           kStreamBytes - s.peer_wrote));
    s.peer_wrote += write_now(s.peer.number(), bite.data(), bite.size());
    std::byte heard[9'000];
    const size_t got = read_now(s.peer.number(), heard, random() % sizeof heard);
    good = good && is_pattern(heard, got, s.peer_read);
    s.peer_read += got;
    return s.taken == kStreamBytes && s.given == kStreamBytes && s.peer_read == kStreamBytes;
  };
  const bool ended = run_until([&] {
    size_t done = 0;
    for (auto& each : streams) done += turn(*each);
    return done == kSockets || !good;
  });
  for (auto& each : streams) {
    good &= each->ours.receive_count == each->receives && each->ours.send_count == each->sends;
    if (!good || !ended) sockets->abort(each->ours.socket);
  }
  run_until([&] {
    return std::none_of(streams.begin(), streams.end(), [](const auto& each) {
      return each->ours.socket.receive.is_in_flight || each->ours.socket.send.is_in_flight;
    });
  });
  for (auto& each : streams) sockets->detach(each->ours.socket);
  CHECK_TEXT(ended, seed.text());
  CHECK_TEXT(good, seed.text());
  CHECK_EQUAL(kSockets * kStreamBytes, counters.received_bytes.read());
  CHECK_EQUAL(kSockets * kStreamBytes, counters.sent_bytes.read());
}

// The loop on a thread of its own (a ring belongs to its thread), never spinning; the peer speaks
// once the loop has gone to sleep.
void SocketsFixture::woken_by_a_socket() {
  constexpr int kRounds = 200;
  EventLoop sleepy;
  EventLoopCounters loop_counters;
  EventLoopOptions options;
  options.spin_ns = 0;
  options.counters = &loop_counters;
  CHECK(sleepy.create(options).ok());
  int fds[2];
  LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
  const Fd near(fds[0]);
  const Fd far(fds[1]);
  struct Echo {
    StreamSocket socket;
    StreamSockets* sockets = nullptr;
    EventLoop* loop = nullptr;
    iovec piece = {};
    std::byte byte{};
    static void received(void* context, int64_t result) noexcept {
      auto& self = *static_cast<Echo*>(context);
      if (result <= 0) return self.loop->stop();
      self.piece = {&self.byte, 1};
      self.socket.send.pieces = &self.piece;
      self.socket.send.piece_count = 1;
      self.sockets->send(self.socket);
    }
    static void sent(void* context, int64_t result) noexcept {
      auto& self = *static_cast<Echo*>(context);
      if (result <= 0) return self.loop->stop();
      self.again();
    }
    void again() noexcept {
      piece = {&byte, 1};
      socket.receive.pieces = &piece;
      socket.receive.piece_count = 1;
      sockets->receive(socket);
    }
  } echo;
  std::atomic<bool> is_made{false};
  std::thread shard([&] {
    std::unique_ptr<StreamSockets> own = make();
    SocketCounters own_counters;
    StreamSocketsOptions socket_options;
    socket_options.loop = &sleepy;
    socket_options.counters = &own_counters;
    is_made = own->create(socket_options).ok();
    if (!is_made) return;
    echo.sockets = own.get();
    echo.loop = &sleepy;
    echo.socket.fd = near.number();
    echo.socket.receive.completed = &Echo::received;
    echo.socket.receive.context = &echo;
    echo.socket.send.completed = &Echo::sent;
    echo.socket.send.context = &echo;
    own->attach(echo.socket);
    echo.again();
    sleepy.add_source(*own, 16);
    sleepy.set_sleeper(*own);
    sleepy.run();
    own->detach(echo.socket);
  });
  const timeval bound = {20, 0};
  setsockopt(far.number(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  int answered = 0;
  int problem = 0;  // an errno value; -1: the echo ended, -2: it was another byte
  uint64_t sleeps = 0;
  for (; answered < kRounds; ++answered) {
    const uint64_t end = monotonic_ns() + kBoundNs;
    while (loop_counters.sleeps.read() == sleeps && monotonic_ns() < end) {
      std::this_thread::yield();
    }
    sleeps = loop_counters.sleeps.read();
    const auto said = static_cast<std::byte>(answered);
    std::byte heard{};
    const ssize_t wrote = write(far.number(), &said, 1);
    ssize_t got = 0;
    do {  // work that a ring of an earlier test left to this thread may interrupt it
      got = read(far.number(), &heard, 1);
    } while (got < 0 && errno == EINTR);
    problem = wrote != 1 ? errno : got < 0 ? errno : got == 0 ? -1 : heard != said ? -2 : 0;
    if (problem != 0) break;
  }
  shutdown(far.number(), SHUT_RDWR);  // ends the echo, which stops the loop
  shard.join();
  CHECK(is_made);
  LONGS_EQUAL(0, problem);
  LONGS_EQUAL(kRounds, answered);
}

void SocketsFixture::insists() {
  connect_pair();
  std::byte buffer[8];
  BP_CHECK_DIES("piece_count > 0", {
    ours.receive_pieces.clear();
    start_receive(ours, 1);
  });
  receive(ours, buffer, sizeof buffer);
  BP_CHECK_DIES("is_in_flight", sockets->receive(ours.socket));
  BP_CHECK_DIES("is_in_flight", sockets->detach(ours.socket));
}

// ---- both backends ------------------------------------------------------------------------------

TEST_GROUP_BASE(UringSockets, SocketsFixture) {
  std::unique_ptr<StreamSockets> make() override { return make_uring_sockets(); }
};
TEST_GROUP_BASE(EpollSockets, SocketsFixture) {
  std::unique_ptr<StreamSockets> make() override { return make_epoll_sockets(); }
};

#define BP_BOTH_BACKENDS(sentence, ...)                              \
  TEST(UringSockets, sentence) {                                     \
    if (!is_available()) BP_SKIP("io_uring is not available here");  \
    __VA_ARGS__;                                                     \
  }                                                                  \
  TEST(EpollSockets, sentence) {                                     \
    CHECK(is_available());                                           \
    __VA_ARGS__;                                                     \
  }

BP_BOTH_BACKENDS(EchoOverASocketPair, connect_pair(); echo())
BP_BOTH_BACKENDS(EchoOverTcp, connect_tcp(); echo())
BP_BOTH_BACKENDS(ReceiveIntoAndSendFromManyPieces, scatter_and_gather())
BP_BOTH_BACKENDS(AReceiveCompletesOnceItsMinimumIsThere, waits_for_min_bytes())
BP_BOTH_BACKENDS(ASendToASlowReaderCompletesOnceWithAllBytes, sends_to_a_slow_reader())
BP_BOTH_BACKENDS(OperationsNeverCompleteFromWithinTheirStart, never_calls_back_from_within())
BP_BOTH_BACKENDS(AcceptManyConnections, accepts_many())
BP_BOTH_BACKENDS(AcceptNobodyOnceStoppedAndAgainOnceStarted, stop_and_start_listening())
BP_BOTH_BACKENDS(ALoopThatSleepsIsWokenByASocket, woken_by_a_socket())
BP_BOTH_BACKENDS(ASleepCallsNobody, calls_nobody_from_within_a_sleep())
BP_BOTH_BACKENDS(TheEndOfTheStreamIsZero, end_of_file())
BP_BOTH_BACKENDS(TheEndOfTheStreamBeforeTheMinimumIsZero, end_of_file_before_min_bytes())
BP_BOTH_BACKENDS(AResetIsAnErrorForBothDirections, reset())
BP_BOTH_BACKENDS(ASendFailsWhenThePeerLeavesInTheMiddle, send_to_a_peer_that_left())
BP_BOTH_BACKENDS(AbortCompletesWhatIsInFlightOnce, abort_in_flight())
BP_BOTH_BACKENDS(WithoutDescriptorsAcceptingPausesAndRecovers, runs_out_of_descriptors())
BP_BOTH_BACKENDS(StoppedWhilePausingAListenerStaysStopped, stops_listening_while_it_pauses())
BP_BOTH_BACKENDS(InsistOnTheirRequirements, insists())
BP_BOTH_BACKENDS(RandomTrafficArrivesWholeAndEachOperationCompletesOnce, random_traffic())

TEST(UringSockets, AreADevice) {
  STRCMP_EQUAL("io_uring", sockets->name());
  STRCMP_EQUAL("io_uring", sockets->device()->name());
}
TEST(EpollSockets, AreNoDevice) {
  STRCMP_EQUAL("epoll", sockets->name());
  POINTERS_EQUAL(nullptr, sockets->device());
}

// ---- what both share ----------------------------------------------------------------------------

TEST_GROUP(SocketOperation){};

TEST(SocketOperation, AdvanceUsesThePiecesUpFromTheFront) {
  char memory[10];
  iovec pieces[] = {{memory, 4}, {memory + 4, 1}, {memory + 5, 5}};
  StreamSocket socket;
  socket.receive.pieces = pieces;
  socket.receive.piece_count = 3;
  socket.receive.min_bytes = 7;
  begin_operation(socket.receive, socket, false);
  CHECK(socket.receive.is_in_flight);
  CHECK(!advance(socket.receive, 3));
  POINTERS_EQUAL(memory + 3, socket.receive.message.msg_iov->iov_base);
  CHECK(!advance(socket.receive, 1));
  LONGS_EQUAL(2, socket.receive.message.msg_iovlen);
  CHECK(!advance(socket.receive, 2));
  POINTERS_EQUAL(memory + 6, socket.receive.message.msg_iov->iov_base);
  LONGS_EQUAL(4, socket.receive.message.msg_iov->iov_len);
  CHECK(advance(socket.receive, 4));
  LONGS_EQUAL(0, socket.receive.message.msg_iovlen);
  LONGS_EQUAL(10, socket.receive.moved_bytes);
}

TEST(SocketOperation, ASendWantsAllItsBytesWhateverItsMinimumSaid) {
  char memory[10];
  iovec pieces[] = {{memory, 4}, {memory + 4, 6}};
  StreamSocket socket;
  socket.send.pieces = pieces;
  socket.send.piece_count = 2;
  socket.send.min_bytes = 1;
  begin_operation(socket.send, socket, true);
  CHECK(!advance(socket.send, 9));
  CHECK(advance(socket.send, 1));
}

TEST(SocketOperation, MovingMoreThanThePiecesHoldIsADefect) {
  char memory[4];
  iovec piece = {memory, 4};
  StreamSocket socket;
  socket.receive.pieces = &piece;
  socket.receive.piece_count = 1;
  begin_operation(socket.receive, socket, false);
  BP_CHECK_DIES("msg_iovlen > 0", advance(socket.receive, 5));
}
