// The data path's law for datagrams, over both backends, on loopback: whatever is sent and
// received, the socket neither allocates nor locks nor logs, and makes no system calls but those
// that move a batch.
//
// The backend finds the sockets that are ready, with io_uring_enter(2) or epoll_wait(2).
#include "transport/udp/udp_socket.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "tests/support/datapath_law.h"
#include "tests/support/patience.h"
#include "tests/transport/udp/udp_rig.h"

using namespace bedplate;
using namespace bedplate::udp_rig;
using test::breaches_in;
using test::Permit;

class UdpSocketLawBodies : public UdpPair {
 public:
  static constexpr int kWarmRounds = 20;
  static constexpr int kWatchedRounds = 50;
  static constexpr uint32_t kBufferCount = 50;

  // Counts the socket's callbacks. An End would record them, which allocates.
  struct Told {
    uint64_t received_bytes = 0;
    uint32_t failure_count = 0;
    uint32_t room_count = 0;
    uint32_t kept_count = 0;
    const std::byte* kept[kBufferCount] = {};
    bool keeps = false;
  } told;
  std::vector<std::byte> bytes = pattern_bytes(0, 20'000);

  DatagramOptions told_options(const char* local) {
    DatagramOptions made;
    made.local = at(local);
    made.owner.context = &told;
    made.owner.received = [](void* context, std::span<ReceivedDatagram> some) noexcept {
      auto& its = *static_cast<Told*>(context);
      for (ReceivedDatagram& one : some) {
        its.received_bytes += one.byte_count;
        one.is_kept = its.keeps;
        if (its.keeps) its.kept[its.kept_count++] = one.bytes;
      }
    };
    made.owner.has_room = [](void* context) noexcept { ++static_cast<Told*>(context)->room_count; };
    made.owner.failed = [](void* context, int, const DatagramAddress&) noexcept {
      ++static_cast<Told*>(context)->failure_count;
    };
    return made;
  }
  // Both ends report to `told`.
  void open_told(const char* local, bool joins_received = false) {
    const DatagramShape shape = {.buffer_count = kBufferCount,
                                 .buffer_bytes = joins_received ? kBigBuffer : kBuffer};
    a = std::make_unique<End>(*sockets, shape);
    b = std::make_unique<End>(*sockets, shape);
    DatagramOptions options = told_options(local);
    a->open(options);
    options.joins_received = joins_received;
    b->open(options);
  }
  // `count` datagrams of `byte_count` bytes each, from a to b.
  std::vector<OutgoingDatagram> outgoing(uint32_t count, uint32_t byte_count) {
    std::vector<OutgoingDatagram> made(count);
    for (OutgoingDatagram& one : made) {
      one.bytes = bytes.data();
      one.byte_count = byte_count;
      one.to = b->socket.local();
    }
    return made;
  }

  // poll_until, sends and moves are watched, so they use no CHECK.
  template <typename Condition>
  bool poll_until(Condition is_met) noexcept {
    const uint64_t end_ns = monotonic_ns() + test::kPatienceNs;
    while (!is_met()) {
      if (monotonic_ns() > end_ns) return false;
      sockets->poll(64);
    }
    return true;
  }
  bool sends(std::span<OutgoingDatagram> some) noexcept {
    return a->socket.send_batch(some).status == DatagramStatus::kDone;
  }
  bool moves(std::span<OutgoingDatagram> some) noexcept {
    uint64_t end_bytes = told.received_bytes;
    for (const OutgoingDatagram& one : some) end_bytes += one.byte_count;
    return sends(some) && poll_until([&] { return told.received_bytes >= end_bytes; });
  }

  template <typename Deed>
  uint32_t breaches_of(Deed deed, Permit permit) {
    return breaches_in(deed,
                       permit | (sockets->device() != nullptr ? Permit::kRing : Permit::kEpoll));
  }
  // `deed` returns whether it succeeded.
  template <typename Deed>
  void keeps_the_law(Deed deed, Permit permit = Permit::kDatagrams) {
    bool is_done = true;
    for (int i = 0; i < kWarmRounds && is_done; ++i) is_done = deed();
    CHECK(is_done);
    const auto all = [&] {
      for (int i = 0; i < kWatchedRounds && is_done; ++i) is_done = deed();
    };
    LONGS_EQUAL(0, breaches_of(all, permit));
    CHECK(is_done);
  }

  // Several system calls in each direction, with all control data that a datagram can have.
  void batches(const char* local) {
    BP_SKIP_WITHOUT_LAW();
    if (at(local).ip.family == AF_INET6 && !has_ipv6()) BP_SKIP("this machine has no IPv6");
    open_told(local);
    std::vector<OutgoingDatagram> out = outgoing(3 * UdpSocket::kBatchMax, 60);
    for (uint32_t i = 0; i < out.size(); ++i) {
      out[i].ecn = static_cast<Ecn>(i % 4);  // so that none is joined
      if (i % 3 == 0) out[i].from = a->socket.local().ip;
    }
    const uint64_t calls = counters.system_calls.read();
    CHECK(sends(out));
    LONGS_EQUAL(3, counters.system_calls.read() - calls);
    keeps_the_law([&] { return moves(out); });
  }
  // One message for many datagrams, and one datagram that is cut.
  void joined(bool joins_received) {
    BP_SKIP_WITHOUT_LAW();
    open_told("127.0.0.1:0", joins_received);
    std::vector<OutgoingDatagram> out = outgoing(40, 400);
    OutgoingDatagram& cut = out.emplace_back(out.front());
    cut.byte_count = 20'000;
    cut.segment_bytes = 1316;
    keeps_the_law([&] { return moves(out); });
    LONGS_EQUAL(0, counters.cutting_refusals.read());
  }
  void nothing() {
    BP_SKIP_WITHOUT_LAW();
    open_told("127.0.0.1:0");
    keeps_the_law([&] {
      for (int i = 0; i < 100; ++i) sockets->poll(64);
      return true;
    });
  }
  // The socket is not watched while it has no buffer.
  void all_are_kept() {
    BP_SKIP_WITHOUT_LAW();
    open_told("127.0.0.1:0");
    told.keeps = true;
    std::vector<OutgoingDatagram> out = outgoing(kBufferCount + 10, 60);
    const auto release = [&] {
      for (uint32_t i = 0; i < told.kept_count; ++i) b->socket.release(told.kept[i]);
      return std::exchange(told.kept_count, 0);
    };
    keeps_the_law(
        [&] {
          const bool is_full =
              sends(out) && poll_until([&] { return told.kept_count == kBufferCount; });
          for (int i = 0; i < 10; ++i) sockets->poll(64);
          const bool is_kept = is_full && release() == kBufferCount;
          const bool has_rest = is_kept && poll_until([&] { return told.kept_count == 10; });
          return has_rest && release() == 10;
        },
        Permit::kDatagrams | Permit::kWatches);
  }
  void unreachable() {
    BP_SKIP_WITHOUT_LAW();
    open_told("127.0.0.1:0");
    std::vector<OutgoingDatagram> out = outgoing(1, 60);
    b->socket.close();
    keeps_the_law(
        [&] {
          const uint32_t before = told.failure_count;
          return sends(out) && poll_until([&] { return told.failure_count > before; });
        },
        Permit::kDatagrams | Permit::kDatagramErrors);
  }
  // Loopback is never full, but a pair of Unix sockets is. One of the pair replaces the UDP socket.
  void again_and_room() {
    BP_SKIP_WITHOUT_LAW();
    a = std::make_unique<End>(*sockets);
    CHECK(a->socket.open(told_options("127.0.0.1:0")).ok());
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
    LONGS_EQUAL(a->socket.fd(), dup3(fds[0], a->socket.fd(), O_CLOEXEC));
    close(fds[0]);
    const Fd far(fds[1]);
    LONGS_EQUAL(0, a->socket.start());
    OutgoingDatagram one;
    one.bytes = bytes.data();
    one.byte_count = 1000;
    uint32_t breach_count = 0;
    for (uint32_t round = 1; round <= 3; ++round) {  // the first round is the warm-up
      bool is_full = false;
      const uint32_t filling = breaches_of(
          [&] {
            for (int i = 0; i < 100'000 && !is_full; ++i) is_full = !sends({&one, 1});
          },
          Permit::kDatagrams | Permit::kWatches);
      CHECK(is_full);
      std::byte buffer[2000];
      while (read_now(far.number(), buffer, sizeof buffer) > 0) {
      }
      bool has_room = false;
      const uint32_t waiting =
          breaches_of([&] { has_room = poll_until([&] { return told.room_count == round; }); },
                      Permit::kDatagrams | Permit::kWatches);
      CHECK(has_room);
      if (round > 1) breach_count += filling + waiting;
    }
    LONGS_EQUAL(0, breach_count);
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(UdpSocketLaw, UdpSocketLawBodies);

BP_BOTH_BACKENDS(UdpSocketLaw, BatchesOverIpv4, batches("127.0.0.1:0"))
BP_BOTH_BACKENDS(UdpSocketLaw, BatchesOverIpv6, batches("[::1]:0"))
BP_BOTH_BACKENDS(UdpSocketLaw, JoinedOnesReceivedByThemselves, joined(false))
BP_BOTH_BACKENDS(UdpSocketLaw, JoinedOnesReceivedJoined, joined(true))
BP_BOTH_BACKENDS(UdpSocketLaw, APollThatFindsNothing, nothing())
BP_BOTH_BACKENDS(UdpSocketLaw, NoBufferIsLeft, all_are_kept())
BP_BOTH_BACKENDS(UdpSocketLaw, WhatDidNotArrive, unreachable())
BP_BOTH_BACKENDS(UdpSocketLaw, NoRoomAndRoomAgain, again_and_room())
