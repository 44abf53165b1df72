// Accepting connections, and sleeping until there is work.
#include "tests/transport/sockets/stream_sockets_fixture.h"

#include <atomic>
#include <string>
#include <thread>

#include <netinet/tcp.h>

#include "pinned_pool/join/join_socket.h"

using namespace bedplate;

class ListeningBodies : public SocketsFixture {
 public:
  void accepts_many() {
    if (!allow_open_files(512).ok()) BP_SKIP("a process may have fewer open files here");
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

  // A queue that was polled before the sockets in this round may have been filled since. The poll
  // takes the eventfd's count, so the round must not count as idle.
  void a_ring_is_work() {
    pump();
    loop->doorbell().announce_sleep();
    loop->doorbell().ring();
    bool was_work = false;
    for (int i = 0; i < 100 && !was_work; ++i) was_work = sockets->poll(64) > 0;
    loop->doorbell().announce_awake();
    CHECK(was_work);
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

  // Leaves no descriptor but those that are open now.
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
    // The listener pauses instead of trying without end. Then it tries again, in vain.
    const uint64_t first_ns = listener.retry.deadline_ns;
    const uint64_t calls = counters.system_calls.read();
    CHECK(run_until(
        [&] { return listener.retry.is_armed() && listener.retry.deadline_ns != first_ns; }));
    CHECK(counters.system_calls.read() - calls < 1000);
    LONGS_EQUAL(0, accepted.fds.size());
    LONGS_EQUAL(0, setrlimit(RLIMIT_NOFILE, &files_before));
    CHECK(run_until([&] { return accepted.fds.size() == 1; }));
    // The listener goes on as before.
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
    CHECK(loop->own_timers().next_deadline_ns() == TimerQueue::kNever);
  }

  // A callback reads the loop's time, which stands still while the loop sleeps.
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
    for (int i = 0; i < 100; ++i) pump();  // until the kernel has both operations
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

  static int option_of(const Fd& fd, int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    LONGS_EQUAL(0, getsockopt(fd.number(), level, name, &value, &bytes));
    return value;
  }

  // tests/system/vanished_test.py tests the effect on a network.
  void limits_the_silence_of_peers() {
    sockaddr_in address;
    const Fd fd = listening_socket(&address);
    Accepted accepted;
    StreamListener listener;
    listener.fd = fd.number();
    listener.silence_ns_max = 10 * kNsPerSecond;
    listener.accepted = &Accepted::take;
    listener.context = &accepted;
    const Fd early = connect_to(address);  // the kernel accepts it before the listener starts
    sockets->start_listening(listener);
    CHECK(run_until([&] { return accepted.fds.size() == 1; }));
    listener.silence_ns_max = 0;
    const Fd late = connect_to(address);
    CHECK(run_until([&] { return accepted.fds.size() == 2; }));
    LONGS_EQUAL(10'000, option_of(accepted.fds[0], IPPROTO_TCP, TCP_USER_TIMEOUT));
    LONGS_EQUAL(3, option_of(accepted.fds[0], IPPROTO_TCP, TCP_KEEPIDLE));
    LONGS_EQUAL(3, option_of(accepted.fds[0], IPPROTO_TCP, TCP_KEEPINTVL));
    LONGS_EQUAL(1, option_of(accepted.fds[0], SOL_SOCKET, SO_KEEPALIVE));
    LONGS_EQUAL(0, option_of(accepted.fds[1], IPPROTO_TCP, TCP_USER_TIMEOUT));
    LONGS_EQUAL(0, option_of(accepted.fds[1], SOL_SOCKET, SO_KEEPALIVE));
    sockets->stop_listening(listener);
    CHECK(run_until([&] { return !listener.is_armed; }));
  }

  void woken_by_a_socket();
};

// The loop on a thread of its own (a ring belongs to its thread), never spinning; the peer speaks
// once the loop has gone to sleep.
void ListeningBodies::woken_by_a_socket() {
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
  const timeval bound = {test::kPatienceNs / kNsPerSecond, 0};
  setsockopt(far.number(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
  int answered = 0;
  int problem = 0;  // an errno value; -1: the echo ended, -2: it was another byte
  uint64_t sleeps = 0;
  for (; answered < kRounds; ++answered) {
    test::eventually([&] { return loop_counters.sleeps.read() > sleeps; });
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

BP_GROUPS_OF_BOTH_BACKENDS(Listening, ListeningBodies);

BP_BOTH_BACKENDS(Listening, AcceptManyConnections, accepts_many())
BP_BOTH_BACKENDS(Listening, AcceptNobodyOnceStoppedAndAgainOnceStarted, stop_and_start_listening())
BP_BOTH_BACKENDS(Listening, ALoopThatSleepsIsWokenByASocket, woken_by_a_socket())
BP_BOTH_BACKENDS(Listening, APeerMayBeSilentForAsLongAsTheListenerSays,
                 limits_the_silence_of_peers())
BP_BOTH_BACKENDS(Listening, ARingIsWork, a_ring_is_work())
BP_BOTH_BACKENDS(Listening, ASleepCallsNobody, calls_nobody_from_within_a_sleep())
BP_BOTH_BACKENDS(Listening, WithoutDescriptorsAcceptingPausesAndRecovers, runs_out_of_descriptors())
BP_BOTH_BACKENDS(Listening, StoppedWhilePausingAListenerStaysStopped,
                 stops_listening_while_it_pauses())
