// Outgoing connections: over each family, refusals with their error number, time limits, and
// aborts.
#include "transport/sockets/connecting.h"

#include <sys/un.h>

#include "tests/support/death_test.h"
#include "tests/support/refusing_port.h"
#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

namespace {

struct Attempt {
  Connecting connecting;
  uint32_t calls = 0;
  int result = 1;
  Fd fd;

  explicit Attempt(int family) : fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    connecting.fd = fd.number();
    connecting.context = this;
    connecting.completed = [](void* context, int outcome) noexcept {
      auto& self = *static_cast<Attempt*>(context);
      ++self.calls;
      self.result = outcome;
    };
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
};

// In the abstract name space, which leaves no file.
sockaddr_un unix_address(socklen_t* bytes) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const int count = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                                  "bedplate-connecting-%d", getpid());
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return address;
}

}  // namespace

class ConnectingBodies : public SocketsFixture {
 public:
  template <typename Address>
  void start(Attempt& attempt, const Address& address, socklen_t bytes = sizeof(Address)) {
    LONGS_EQUAL(0, start_connecting(*sockets, *loop, attempt.connecting,
                                    reinterpret_cast<const sockaddr*>(&address), bytes));
    LONGS_EQUAL(0, attempt.calls);
  }
  int result_of(Attempt& attempt) {
    CHECK(run_until([&] { return attempt.calls > 0; }));
    for (int i = 0; i < 10; ++i) pump();
    LONGS_EQUAL(1, attempt.calls);
    CHECK(!attempt.connecting.is_in_flight);
    CHECK(!attempt.connecting.limit.is_armed());
    CHECK(!attempt.connecting.watch.is_watched());
    CHECK((fcntl(attempt.fd.number(), F_GETFL) & O_NONBLOCK) == 0);
    return attempt.result;
  }

  // Connects, attaches the socket, and receives bytes.
  template <typename Address>
  void connects(int family, Address address, socklen_t bytes = sizeof(Address)) {
    const Fd listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!listener.is_open() ||
        bind(listener.number(), reinterpret_cast<sockaddr*>(&address), bytes) != 0) {
      BP_SKIP("this machine has no such loopback");
    }
    LONGS_EQUAL(0, listen(listener.number(), 4));
    LONGS_EQUAL(0, getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &bytes));
    Attempt attempt(family);
    attempt.connecting.time_ns_max = test::kPatienceNs;
    start(attempt, address, bytes);
    LONGS_EQUAL(0, result_of(attempt));
    peer = Fd(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    CHECK(peer.is_open());
    ours_fd = std::move(attempt.fd);
    attach(ours, ours_fd.number());
    std::byte buffer[8];
    receive(ours, buffer, sizeof buffer, 8);
    for (int i = 0; i < 10; ++i) pump();
    LONGS_EQUAL(0, ours.receive_count);
    LONGS_EQUAL(8, write_now(peer.number(), pattern_bytes(0, 8).data(), 8));
    CHECK(run_until([&] { return ours.receive_count == 1; }));
    LONGS_EQUAL(8, ours.received);
  }
  void tcp4() {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connects(AF_INET, address);
  }
  void tcp6() {
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    connects(AF_INET6, address);
  }
  void unix_domain() {
    socklen_t bytes = 0;
    const sockaddr_un address = unix_address(&bytes);
    connects(AF_UNIX, address, bytes);
  }

  void refused() {
    const test::RefusingPort nobodys(SOCK_STREAM);
    Attempt tcp(AF_INET);
    start(tcp, nobodys.address());
    LONGS_EQUAL(-ECONNREFUSED, result_of(tcp));
    socklen_t bytes = 0;
    const sockaddr_un nobody = unix_address(&bytes);
    Attempt local(AF_UNIX);
    start(local, nobody, bytes);
    LONGS_EQUAL(-ECONNREFUSED, result_of(local));
    Attempt wrong_family(AF_INET);
    start(wrong_family, nobody, bytes);
    LONGS_EQUAL(-EAFNOSUPPORT, result_of(wrong_family));
  }

  void full_backlog() {
    socklen_t bytes = 0;
    const sockaddr_un address = unix_address(&bytes);
    const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    LONGS_EQUAL(0, bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), bytes));
    LONGS_EQUAL(0, listen(listener.number(), 0));
    Attempt first(AF_UNIX), second(AF_UNIX);
    start(first, address, bytes);
    LONGS_EQUAL(0, result_of(first));
    start(second, address, bytes);
    LONGS_EQUAL(-EAGAIN, result_of(second));
    Fd(accept(listener.number(), nullptr, nullptr)).close();
    second.calls = 0;  // again, now that the backlog has space
    start(second, address, bytes);
    LONGS_EQUAL(0, result_of(second));
  }

  // A listener with a full backlog drops further connections, so an attempt stays under way. The
  // backlog is full once the listener has a connection to accept. Until then the kernel could
  // accept another one, because it may finish a handshake later, on another processor.
  struct Deaf {
    sockaddr_in address;
    Fd fd = listening_socket(&address);
    Fd before;
    Deaf() {
      LONGS_EQUAL(0, listen(fd.number(), 0));
      before = connect_to(address);
      CHECK(test::has_input(fd.number()));
    }
  };
  void aborted() {
    const Deaf deaf;
    Attempt attempt(AF_INET);
    abort_connecting(attempt.connecting);  // not in flight: nothing happens
    start(attempt, deaf.address);
    for (int i = 0; i < 20; ++i) pump();
    LONGS_EQUAL(0, attempt.calls);
    abort_connecting(attempt.connecting);
    abort_connecting(attempt.connecting);
    LONGS_EQUAL(0, attempt.calls);
    LONGS_EQUAL(-ECANCELED, result_of(attempt));
  }
  void aborted_once_decided() {
    sockaddr_in address;
    const Fd listener = listening_socket(&address);
    Attempt attempt(AF_INET);
    start(attempt, address);  // loopback: it is connected by now, but has not been reported
    abort_connecting(attempt.connecting);
    LONGS_EQUAL(-ECANCELED, result_of(attempt));
  }
  void limited_in_time() {
    const Deaf deaf;
    Attempt attempt(AF_INET);
    attempt.connecting.time_ns_max = 5 * kNsPerMs;
    const uint64_t begin = monotonic_ns();
    start(attempt, deaf.address);
    LONGS_EQUAL(-ETIMEDOUT, result_of(attempt));
    CHECK(monotonic_ns() - begin >= attempt.connecting.time_ns_max);
  }

  void insists() {
    const Deaf deaf;
    Attempt attempt(AF_INET);
    start(attempt, deaf.address);
    BP_CHECK_DIES("an attempt to connect begins while it is in flight",
                  start(attempt, deaf.address));
    abort_connecting(attempt.connecting);
    LONGS_EQUAL(-ECANCELED, result_of(attempt));
    attempt.connecting.fd = -1;
    const sockaddr_in address = deaf.address;
    LONGS_EQUAL(EBADF,
                start_connecting(*sockets, *loop, attempt.connecting,
                                 reinterpret_cast<const sockaddr*>(&address), sizeof address));
    CHECK(!attempt.connecting.is_in_flight);
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(Connecting, ConnectingBodies);

BP_BOTH_BACKENDS(Connecting, ConnectsOverIpv4, tcp4())
BP_BOTH_BACKENDS(Connecting, ConnectsOverIpv6, tcp6())
BP_BOTH_BACKENDS(Connecting, ConnectsToAUnixSocket, unix_domain())
BP_BOTH_BACKENDS(Connecting, ARefusalIsItsNumber, refused())
BP_BOTH_BACKENDS(Connecting, AFullBacklogOfAUnixSocketIsToBeTriedAgain, full_backlog())
BP_BOTH_BACKENDS(Connecting, AbortedItCompletesOnce, aborted())
BP_BOTH_BACKENDS(Connecting, AbortedAfterTheDecisionItIsAborted, aborted_once_decided())
BP_BOTH_BACKENDS(Connecting, EndsWhenItsTimeIsOver, limited_in_time())
BP_BOTH_BACKENDS(Connecting, InsistsOnItsRequirements, insists())
