// Peers that do not read, and the counters that name them, with both backends against the real
// kernel. The tests expire at once the timers that are due a second later.
#include "transport/sockets/slow_sends.h"

#include <string>
#include <vector>

#include <linux/tcp.h>
#include <sys/un.h>

#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

namespace {

constexpr size_t kTooMuch = 16 << 20;  // more than the buffers of a socket hold

}  // namespace

class SlowBodies : public SocketsFixture {
 public:
  std::vector<std::byte> much = std::vector<std::byte>(kTooMuch);

  struct Pair {
    Fd peer;
    Fd own;
    sockaddr_in address;
  };
  Pair pair() {
    Pair made;
    sockaddr_in address;
    const Fd listener = listening_socket(&address);
    made.peer = connect_to(address);
    made.own = Fd(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    made.address = address;
    CHECK(made.own.is_open());
    return made;
  }
  void begin_sending(Ours& its, int fd) {
    loop->look_at_clock();
    its.socket.fd = fd;
    LONGS_EQUAL(0, sockets->attach(its.socket));
    its.send_pieces = {{much.data(), much.size()}};
    its.socket.send.pieces = its.send_pieces.data();
    its.socket.send.piece_count = 1;
    sockets->send(its.socket);
    for (int i = 0; i < 100; ++i) sockets->poll(64);
    LONGS_EQUAL(0, its.send_count);
  }
  // Reads until the send has ended.
  void end_sending(Ours& its, const Fd& of) {
    std::vector<std::byte> buffer(1 << 20);
    CHECK(run_until([&] {
      read_now(of.number(), buffer.data(), buffer.size());
      return its.send_count == 1;
    }));
  }
  bool look() {
    const uint64_t due_ns = loop->own_timers().next_deadline_ns();
    return due_ns != TimerQueue::kNever && loop->own_timers().expire(due_ns) > 0;
  }
  // Repeats look() until `count` clients are slow. Bytes on their way may still be taken at first.
  bool look_until_slow(uint64_t count) {
    return run_until([&] { return look() && counters.slow_clients.read() == count; });
  }
  std::string told() {
    struct Words {
      const SharedText* text;
      size_t size() const { return SharedText::kBytesMax / sizeof(Counter); }
      const Counter& operator[](size_t i) const {
        return reinterpret_cast<const Counter*>(text)[i];
      }
    };
    return std::string(SharedText::read(Words{&counters.slow_client}).view());
  }

  void a_peer_that_does_not_read_is_named_until_it_does() {
    Pair both = pair();
    Ours slow;
    begin_sending(slow, both.own.number());
    CHECK(look());  // the first look notes the send's progress, the second the kernel's
    CHECK(look());
    LONGS_EQUAL(0, counters.slow_clients.read());
    CHECK(look_until_slow(1));
    sockaddr_in name = {};
    socklen_t bytes = sizeof name;
    getsockname(both.peer.number(), reinterpret_cast<sockaddr*>(&name), &bytes);
    const std::string expected = "127.0.0.1:" + std::to_string(ntohs(name.sin_port)) +
                                 " at 127.0.0.1:" + std::to_string(ntohs(both.address.sin_port));
    STRCMP_EQUAL(expected.c_str(), told().c_str());
    end_sending(slow, both.peer);
    look();
    LONGS_EQUAL(0, counters.slow_clients.read());
    STRCMP_EQUAL("", told().c_str());
    CHECK_FALSE(look());  // nothing is sent, so no timer is armed
    sockets->detach(slow.socket);
  }
  void who_has_taken_anything_is_not_slow_and_who_goes_is_forgotten() {
    Pair both = pair(), other = pair();
    Ours slow, gone;
    begin_sending(gone, other.own.number());
    begin_sending(slow, both.own.number());
    CHECK(look_until_slow(2));
    sockets->abort(gone.socket);
    CHECK(run_until([&] { return gone.send_count == 1; }));
    sockets->detach(gone.socket);
    CHECK(look_until_slow(1));
    end_sending(slow, both.peer);
    slow.send_count = 0;
    slow.send_pieces = {{much.data(), much.size()}};
    sockets->send(slow.socket);  // another answer, after the peer took the first
    CHECK(look());
    CHECK(look());
    LONGS_EQUAL(0, counters.slow_clients.read());
    CHECK(look_until_slow(1));
    end_sending(slow, both.peer);
    sockets->detach(slow.socket);
  }
  // One long send, of which io_uring reports nothing until its end.
  void a_peer_that_reads_slowly_but_steadily_is_not_slow() {
    Pair both = pair();
    Ours its;
    begin_sending(its, both.own.number());
    CHECK(look());
    std::vector<std::byte> buffer(64 << 10);
    for (int i = 0; i < 6; ++i) {
      const uint64_t before = acknowledged_bytes(both.own);
      CHECK(run_until([&] {
        if (acknowledged_bytes(both.own) != before) return true;
        read_now(both.peer.number(), buffer.data(), buffer.size());
        return false;
      }));
      LONGS_EQUAL(0, its.send_count);
      CHECK(look());
      LONGS_EQUAL(0, counters.slow_clients.read());
    }
    CHECK(look_until_slow(1));
    end_sending(its, both.peer);
    sockets->detach(its.socket);
  }
  static uint64_t acknowledged_bytes(const Fd& socket) {
    tcp_info info = {};
    socklen_t bytes = sizeof info;
    LONGS_EQUAL(0, getsockopt(socket.number(), IPPROTO_TCP, TCP_INFO, &info, &bytes));
    return info.tcpi_bytes_acked;
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(SlowSends, SlowBodies);

BP_BOTH_BACKENDS(SlowSends, APeerThatDoesNotReadIsNamedUntilItDoes,
                 a_peer_that_does_not_read_is_named_until_it_does())
BP_BOTH_BACKENDS(SlowSends, APeerThatHasTakenAnythingIsNotSlow,
                 who_has_taken_anything_is_not_slow_and_who_goes_is_forgotten())
BP_BOTH_BACKENDS(SlowSends, APeerThatReadsSlowlyButSteadilyIsNotSlow,
                 a_peer_that_reads_slowly_but_steadily_is_not_slow())
