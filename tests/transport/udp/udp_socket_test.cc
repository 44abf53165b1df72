// Datagrams over both backends, on loopback: their metadata; too many, too long and unreachable
// ones; and that no buffer is lost.
#include "transport/udp/udp_socket.h"

#include <cerrno>

#include <linux/capability.h>
#include <net/if.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/capabilities.h"
#include "tests/support/death_test.h"
#include "tests/support/refusing_port.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/udp/udp_rig.h"
#include "transport/udp/udp_descriptor.h"

using namespace bedplate;
using namespace bedplate::udp_rig;

namespace {

constexpr uint64_t kNetAdmin = uint64_t{1} << CAP_NET_ADMIN;

// Takes the right to administer the network from this thread, until the destructor.
class WithoutNetAdmin {
 public:
  WithoutNetAdmin() {
    LONGS_EQUAL(0, syscall(SYS_capget, &header_, before_));
    __user_cap_data_struct less[2] = {before_[0], before_[1]};
    less[0].effective &= ~static_cast<uint32_t>(kNetAdmin);
    LONGS_EQUAL(0, syscall(SYS_capset, &header_, less));
  }
  ~WithoutNetAdmin() { syscall(SYS_capset, &header_, before_); }

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

}  // namespace

class UdpSocketBodies : public UdpPair {
 public:
  // Takes over a descriptor that preflight opened, long before there is a service.
  void taken_over() {
    open_both("127.0.0.1:0");
    a->socket.close();
    auto opened = open_udp(a->options("127.0.0.1:0"), a->shape);
    CHECK(opened.ok());
    sockaddr_in6 name = {};
    socklen_t bytes = sizeof name;
    const int fd = opened.value().number();
    LONGS_EQUAL(0, getsockname(fd, reinterpret_cast<sockaddr*>(&name), &bytes));
    const Fd stranger(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    LONGS_EQUAL(3,
                sendto(stranger.number(), "old", 3, 0, reinterpret_cast<sockaddr*>(&name), bytes));
    // Nobody receives there any more, so the kernel reports an error before the datagram.
    bytes = to_kernel(b->socket.local(), &name);
    b->socket.close();
    LONGS_EQUAL(3, sendto(fd, "lost", 3, 0, reinterpret_cast<sockaddr*>(&name), bytes));
    a->socket.adopt(opened.take(), a->options("127.0.0.1:0"));
    CHECK(a->socket.is_open());
    char text[8];
    LONGS_EQUAL(-1, recv(a->socket.fd(), text, sizeof text, MSG_DONTWAIT));
  }

  void there_and_back(const char* local, const char* ip) {
    if (at(local).ip.family == AF_INET6 && !has_ipv6()) BP_SKIP("this machine has no IPv6");
    open_both(local);
    const auto bytes = pattern_bytes(0, 1000);
    timespec before, after;
    clock_gettime(CLOCK_REALTIME, &before);
    sends(*a, *b, bytes);
    LONGS_EQUAL(0, b->all.size());  // never from within send_batch()
    wait_for(*b, 1);
    clock_gettime(CLOCK_REALTIME, &after);
    const ReceivedDatagram& got = b->all[0].datagram;
    CHECK(b->all[0].bytes == bytes);
    CHECK(got.bytes >= b->memory.data() && got.bytes < b->memory.data() + b->memory.size());
    STRCMP_EQUAL(a->socket.local().text().c_str(), got.from.text().c_str());
    CHECK(is_same(got.to, ip));
    CHECK(!got.is_truncated && got.segment_bytes == 0 && got.ecn == Ecn::kNone);
    CHECK(got.received_ns >= static_cast<uint64_t>(before.tv_sec) * kNsPerSecond);
    CHECK(got.received_ns <= static_cast<uint64_t>(after.tv_sec + 1) * kNsPerSecond);
    const DatagramsSent back = b->send(got.from, {});  // an empty datagram counts, too
    CHECK(back.status == DatagramStatus::kDone);
    wait_for(*a, 1);
    LONGS_EQUAL(0, a->all[0].bytes.size());
    LONGS_EQUAL(2, counters.sent_datagrams.read());
    LONGS_EQUAL(2, counters.received_datagrams.read());
    LONGS_EQUAL(1000, counters.received_bytes.read());
  }

  void in_batches() {
    constexpr uint32_t kCount = 200;  // several system calls, but no more than the queue holds
    open_both("127.0.0.1:0", {.buffer_count = 50, .buffer_bytes = 64});
    std::vector<OutgoingDatagram> out(kCount);
    std::vector<uint32_t> numbers(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      numbers[i] = i;
      out[i].bytes = reinterpret_cast<std::byte*>(&numbers[i]);
      out[i].byte_count = sizeof(uint32_t);
      out[i].to = b->socket.local();
      out[i].ecn = i % 2 == 0 ? Ecn::kNone : Ecn::kCapable0;  // so that none is joined
    }
    const uint64_t calls = counters.system_calls.read();
    const DatagramsSent result = a->socket.send_batch(out);
    CHECK(result.status == DatagramStatus::kDone);
    LONGS_EQUAL(kCount, result.sent_count);
    LONGS_EQUAL((kCount + UdpSocket::kBatchMax - 1) / UdpSocket::kBatchMax,
                counters.system_calls.read() - calls);
    wait_for(*b, kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
      uint32_t number = 0;
      std::memcpy(&number, b->all[i].bytes.data(), sizeof number);
      LONGS_EQUAL(i, number);
    }
  }

  void connected() {
    open_both();
    End other(*sockets);
    other.open(other.options("127.0.0.1:0"));
    End ours_only(*sockets);
    DatagramOptions options = ours_only.options("127.0.0.1:0");
    options.peer = b->socket.local();
    ours_only.open(options);
    sends(other, ours_only, pattern_bytes(0, 1));
    CHECK(b->send(ours_only.socket.local(), pattern_bytes(0, 2)).status == DatagramStatus::kDone);
    wait_for(ours_only, 1);
    LONGS_EQUAL(2, ours_only.all[0].bytes.size());
    CHECK(ours_only.send({}, pattern_bytes(0, 3)).status == DatagramStatus::kDone);
    wait_for(*b, 1);
    other.socket.close();
    ours_only.socket.close();
  }

  void chosen_source() {
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets);
    a->open(a->options("0.0.0.0:0"));
    b->open(b->options("0.0.0.0:0"));
    const auto bytes = pattern_bytes(0, 10);
    OutgoingDatagram one;
    one.bytes = bytes.data();
    one.byte_count = 10;
    one.to = at(("127.0.0.77:" + std::to_string(b->socket.local().port)).c_str());
    one.from = at("127.0.0.5:0").ip;
    CHECK(a->socket.send_batch({&one, 1}).status == DatagramStatus::kDone);
    wait_for(*b, 1);
    CHECK(is_same(b->all[0].datagram.from.ip, "127.0.0.5:0"));
    CHECK(is_same(b->all[0].datagram.to, "127.0.0.77:0"));
  }

  void ecn(const char* local) {
    if (at(local).ip.family == AF_INET6 && !has_ipv6()) BP_SKIP("this machine has no IPv6");
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets);
    b->open(b->options(local));
    DatagramOptions options = a->options(local);
    options.service_class = 46;  // uses the other bits of the same byte
    a->open(options);
    const auto bytes = pattern_bytes(0, 10);
    OutgoingDatagram some[4];
    for (uint32_t i = 0; i < 4; ++i) {
      some[i].bytes = bytes.data();
      some[i].byte_count = 10;
      some[i].to = b->socket.local();
      some[i].ecn = static_cast<Ecn>(i);
    }
    CHECK(a->socket.send_batch(some).status == DatagramStatus::kDone);
    wait_for(*b, 4);
    for (uint32_t i = 0; i < 4; ++i) LONGS_EQUAL(i, b->all[i].datagram.ecn);
  }

  void truncated() {
    open_both("127.0.0.1:0", {.buffer_count = 4, .buffer_bytes = 64});
    sends(*a, *b, pattern_bytes(0, 65));
    sends(*a, *b, pattern_bytes(0, 64));
    wait_for(*b, 2);
    CHECK(b->all[0].datagram.is_truncated);
    CHECK(b->all[0].bytes == pattern_bytes(0, 64));
    CHECK(!b->all[1].datagram.is_truncated);
    LONGS_EQUAL(1, counters.truncated_datagrams.read());
  }

  // The headroom before a datagram belongs to its owner. No other datagram lies there.
  void headroom() {
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets, DatagramShape{.buffer_count = 4, .buffer_bytes = 128});
    DatagramOptions options = b->options("127.0.0.1:0");
    options.headroom_bytes = 64;
    b->open(options);
    a->open(a->options("127.0.0.1:0"));
    b->keeps = true;
    sends(*a, *b, pattern_bytes(0, 65));
    for (uint32_t i = 0; i < 3; ++i) sends(*a, *b, pattern_bytes(i, 64));
    wait_for(*b, 4);
    CHECK(b->all[0].datagram.is_truncated);
    for (const End::Got& got : b->all) {
      CHECK(got.datagram.bytes - 64 >= b->memory.data());
      std::memset(got.datagram.bytes - 64, 0xEE, 64);
    }
    for (uint32_t i = 0; i < 3; ++i) CHECK(is_pattern(b->all[i + 1].datagram.bytes, 64, i));
    for (const End::Got& got : b->all) b->socket.release(got.datagram.bytes - 64);
    b->keeps = false;
    b->all.clear();
    sends(*a, *b, pattern_bytes(9, 64));
    wait_for(*b, 1);
    CHECK(b->all[0].bytes == pattern_bytes(9, 64));
  }

  void kept() {
    open_both("127.0.0.1:0", {.buffer_count = 3, .buffer_bytes = kBuffer});
    b->keeps = true;
    for (uint32_t i = 0; i < 5; ++i) sends(*a, *b, pattern_bytes(i * 100, 100));
    wait_for(*b, 3);
    pump_often();
    LONGS_EQUAL(3, b->all.size());  // the rest waits in the kernel
    uint32_t rounds = 0;  // each sleeps for a millisecond, unless something keeps the shard awake
    const uint64_t end = monotonic_ns() + 20 * kNsPerMs;
    for (; monotonic_ns() < end; ++rounds) pump();
    CHECK(rounds < 100);
    for (uint32_t i = 0; i < 3; ++i) {
      CHECK(is_pattern(b->all[i].datagram.bytes, 100, i * 100));
    }
    b->socket.release(b->all[1].datagram.bytes + 99);
    wait_for(*b, 4);
    POINTERS_EQUAL(b->all[1].datagram.bytes, b->all[3].datagram.bytes);
    b->socket.release(b->all[0].datagram.bytes);
    wait_for(*b, 5);
    CHECK(is_pattern(b->all[4].datagram.bytes, 100, 400));
    BP_CHECK_DIES("was not kept", a->socket.release(a->memory.data()));
  }

  void drops_are_counted() {
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets);
    DatagramOptions options = b->options("127.0.0.1:0");
    options.receive_queue_bytes = 4096;
    b->open(options);
    a->open(a->options("127.0.0.1:0"));
    constexpr uint32_t kCount = 200;
    const auto bytes = pattern_bytes(0, 1000);
    for (uint32_t i = 0; i < kCount; ++i) sends(*a, *b, bytes);
    CHECK(run_until([&] { return !b->all.empty(); }));
    pump_often();
    sends(*a, *b, bytes);  // the next datagram reports the drops
    const size_t before = b->all.size();
    CHECK(run_until([&] { return b->all.size() > before; }));
    LONGS_EQUAL(kCount + 1, b->all.size() + counters.dropped_datagrams.read());
    CHECK(counters.dropped_datagrams.read() > 0);
  }

  // A process with CAP_NET_ADMIN gets the queue that it asks for; others get less.
  void a_large_queue_is_forced() {
    if ((own_capabilities() & kNetAdmin) == 0) BP_SKIP("this takes CAP_NET_ADMIN");
    a = std::make_unique<End>(*sockets);
    DatagramOptions options = a->options("127.0.0.1:0");
    options.receive_queue_bytes = options.send_queue_bytes = 1U << 29;
    test::StderrCapture log;
    a->open(options);
    for (const int name : {SO_RCVBUF, SO_SNDBUF}) {
      int given = 0;
      socklen_t bytes = sizeof given;
      LONGS_EQUAL(0, getsockopt(a->socket.fd(), SOL_SOCKET, name, &given, &bytes));
      LONGS_EQUAL(1U << 30, given);
    }
    STRCMP_CONTAINS("the receive queue of a datagram socket is 512 MiB", log.finish().c_str());
  }

  void a_small_queue_is_said() {
    a = std::make_unique<End>(*sockets);
    DatagramOptions options = a->options("127.0.0.1:0");
    options.receive_queue_bytes = options.send_queue_bytes = 1U << 30;
    test::StderrCapture log;
    {
      const WithoutNetAdmin as_others;
      a->open(options);
    }
    const std::string said = log.finish();
    STRCMP_CONTAINS("1 GiB were requested; sysctl -w net.core.rmem_max=1073741824", said.c_str());
    STRCMP_CONTAINS("sysctl -w net.core.wmem_max=1073741824", said.c_str());
  }

  void unreachable() {
    open_both();
    const test::RefusingPort nobodys(SOCK_DGRAM);
    const DatagramAddress nobody = at(("127.0.0.1:" + std::to_string(nobodys.number())).c_str());
    End connected_one(*sockets);
    DatagramOptions options = connected_one.options("127.0.0.1:0");
    options.peer = nobody;
    connected_one.open(options);
    // Both ends get the errors. Neither loses another datagram meanwhile.
    for (End* end : {&connected_one, a.get()}) {
      CHECK(end->send(nobody, pattern_bytes(0, 10)).status == DatagramStatus::kDone);
      CHECK(end->send(nobody, pattern_bytes(0, 10)).status == DatagramStatus::kDone);
      CHECK(run_until([&] { return end->failures.size() >= 2; }));
      LONGS_EQUAL(ECONNREFUSED, end->failures[0].first);
      STRCMP_EQUAL(nobody.text().c_str(), end->failures[1].second.text().c_str());
    }
    CHECK(a->send(nobody, pattern_bytes(0, 10)).status == DatagramStatus::kDone);
    sends(*a, *b, pattern_bytes(0, 100));
    sends(*b, *a, pattern_bytes(0, 100));
    wait_for(*b, 1);
    wait_for(*a, 1);
    CHECK(run_until([&] { return a->failures.size() == 3; }));
    pump_often();
    LONGS_EQUAL(3, a->failures.size());
    connected_one.socket.close();
  }

  void cannot_be_sent() {
    open_both();
    const auto bytes = pattern_bytes(0, 70'000);
    OutgoingDatagram some[3];
    for (OutgoingDatagram& one : some) {
      one.bytes = bytes.data();
      one.byte_count = 10;
      one.to = b->socket.local();
    }
    some[1].byte_count = 70'000;
    const DatagramsSent result = a->socket.send_batch(some);
    CHECK(result.status == DatagramStatus::kRefused);
    LONGS_EQUAL(1, result.sent_count);
    LONGS_EQUAL(EMSGSIZE, result.error_number);
    CHECK(a->socket.send_batch({&some[2], 1}).status == DatagramStatus::kDone);
    wait_for(*b, 2);
  }

  // The kernel refuses this datagram even uncut, so it is still asked to cut the next one.
  void cannot_be_sent_uncut_either() {
    open_both();
    const auto bytes = pattern_bytes(0, 3000);
    OutgoingDatagram cut;
    cut.bytes = bytes.data();
    cut.byte_count = 3000;
    cut.segment_bytes = 1000;
    cut.to = b->socket.local();
    cut.to.port = 0;
    test::StderrCapture log;
    const DatagramsSent result = a->socket.send_batch({&cut, 1});
    CHECK(result.status == DatagramStatus::kRefused);
    LONGS_EQUAL(EINVAL, result.error_number);
    pump_often();
    STRCMP_EQUAL("", log.finish().c_str());
  }

  // Loopback is never full, but a pair of Unix sockets is. One of the pair replaces the UDP socket.
  void again_and_room() {
    a = std::make_unique<End>(*sockets);
    CHECK(a->socket.open(a->options("127.0.0.1:0")).ok());
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds));
    LONGS_EQUAL(a->socket.fd(), dup3(fds[0], a->socket.fd(), O_CLOEXEC));
    close(fds[0]);
    const Fd far(fds[1]);
    LONGS_EQUAL(0, a->socket.start());
    const auto bytes = pattern_bytes(0, 1000);
    DatagramsSent result;
    uint32_t taken = 0;
    for (; taken < 100'000; ++taken) {
      result = a->send({}, bytes);
      if (result.status != DatagramStatus::kDone) break;
    }
    CHECK(result.status == DatagramStatus::kAgain);
    LONGS_EQUAL(0, result.sent_count);
    pump_often();
    LONGS_EQUAL(0, a->room_count);
    std::byte buffer[2000];
    for (uint32_t i = 0; i < taken; ++i) {
      LONGS_EQUAL(1000, read_now(far.number(), buffer, sizeof buffer));
    }
    CHECK(run_until([&] { return a->room_count > 0; }));
    CHECK(a->send({}, bytes).status == DatagramStatus::kDone);
    LONGS_EQUAL(1000, read_now(far.number(), buffer, sizeof buffer));
    pump_often();
    LONGS_EQUAL(1, a->room_count);  // once only
  }

  void shared_port() {
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets);
    DatagramOptions options = a->options("127.0.0.1:0");
    options.shares_port = true;
    a->open(options);
    const std::string same = a->socket.local().text();
    auto refused = b->socket.open(b->options(same.c_str()));
    CHECK(!refused.ok());
    STRCMP_CONTAINS(("binding a datagram socket to " + same).c_str(), refused.error().doing);
    STRCMP_CONTAINS("let both share it", refused.error().cure);
    options = b->options(same.c_str());
    options.shares_port = true;
    b->open(options);
    End sender(*sockets);
    for (int i = 0; i < 20; ++i) {  // each from another port
      sender.open(sender.options("127.0.0.1:0"));
      CHECK(sender.send(a->socket.local(), pattern_bytes(0, 1)).status == DatagramStatus::kDone);
      sender.socket.close();
    }
    CHECK(run_until([&] { return a->all.size() + b->all.size() == 20; }));
  }

  void multicast() {
    const DatagramAddress group = at("239.255.77.5:0");
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets);
    b->open(b->options("0.0.0.0:0"));
    DatagramOptions options = a->options("127.0.0.1:0");
    options.multicast_interface = "lo";
    a->open(options);
    DatagramAddress to = group;
    to.port = b->socket.local().port;
    const auto bytes = pattern_bytes(0, 10);
    const auto arrives = [&] {
      const size_t before = b->all.size();
      CHECK(a->send(to, bytes).status == DatagramStatus::kDone);
      sends_mark();
      return b->all.size() == before + 2;
    };
    CHECK(!arrives());
    CHECK(b->socket.join(group.ip, {}, "lo").ok());
    CHECK(arrives());
    CHECK(is_same(b->all[b->all.size() - 2].datagram.to, "239.255.77.5:0"));
    auto twice = b->socket.join(group.ip, {}, "lo");
    STRCMP_CONTAINS("already joined", twice.error().cure);
    CHECK(b->socket.leave(group.ip, {}, "lo").ok());
    CHECK(!arrives());
    // Membership for one source only.
    CHECK(b->socket.join(group.ip, at("127.0.0.9:0").ip, "lo").ok());
    CHECK(!arrives());
    CHECK(b->socket.join(group.ip, at("127.0.0.1:0").ip, "lo").ok());
    CHECK(arrives());
    CHECK(b->socket.leave(group.ip, at("127.0.0.1:0").ip, "lo").ok());
    CHECK(!arrives());
    CHECK(!b->socket.join(at("10.0.0.1:0").ip, {}, "lo").ok());
    CHECK(!b->socket.join(group.ip, {}, "nosuch0").ok());
    CHECK(b->socket.leave(group.ip, at("127.0.0.9:0").ip, "lo").ok());
    // rejoin() with an interface's number, any number of times: it leaves the earlier membership.
    const uint32_t lo = if_nametoindex("lo");
    for (const IpAddress& source : {IpAddress{}, at("127.0.0.1:0").ip}) {
      LONGS_EQUAL(0, b->socket.rejoin(group.ip, source, 0, lo));
      for (uint32_t i = 0; i < 50; ++i) {
        LONGS_EQUAL(0, b->socket.rejoin(group.ip, source, lo, lo));
      }
      CHECK(arrives());
      LONGS_EQUAL(0, b->socket.rejoin(group.ip, source, lo, 0));
      CHECK(!arrives());
    }
    LONGS_EQUAL(ENODEV, b->socket.rejoin(group.ip, {}, 0, 0x7ffffff0));
    CHECK(a->socket.send_multicast_over(0x7ffffff0) != 0);
    LONGS_EQUAL(0, a->socket.send_multicast_over(lo));
  }
  void broadcast() {
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets);
    b->open(b->options("0.0.0.0:0"));
    DatagramAddress all = at("127.255.255.255:0");
    all.port = b->socket.local().port;
    const auto bytes = pattern_bytes(0, 10);
    a->open(a->options("127.0.0.1:0"));
    const DatagramsSent refused = a->send(all, bytes);
    CHECK(refused.status == DatagramStatus::kRefused);
    LONGS_EQUAL(EACCES, refused.error_number);
    a->socket.close();
    DatagramOptions options = a->options("127.0.0.1:0");
    options.sends_broadcast = true;
    a->open(options);
    CHECK(a->send(all, bytes).status == DatagramStatus::kDone);
    sends_mark();
    LONGS_EQUAL(2, b->all.size());
  }
  void shared_group() {
    End first(*sockets);
    End second(*sockets);
    DatagramOptions options = first.options("239.255.77.6:0");
    options.shares_port = true;
    first.open(options);
    options = second.options("239.255.77.6:0");
    options.shares_port = true;
    options.local.port = first.socket.local().port;
    second.open(options);
    for (End* end : {&first, &second}) {
      CHECK(end->socket.join(options.local.ip, {}, "lo").ok());
    }
    a = std::make_unique<End>(*sockets);
    DatagramOptions sending = a->options("127.0.0.1:0");
    sending.multicast_interface = "lo";
    a->open(sending);
    for (uint8_t i = 0; i < 10; ++i) {
      CHECK(a->send(options.local, pattern_bytes(i, 10)).status == DatagramStatus::kDone);
    }
    CHECK(run_until([&] { return first.all.size() >= 10 && second.all.size() >= 10; }));
  }
  // Sends a datagram that arrives behind all earlier ones, and waits for it.
  void sends_mark() {
    const size_t before = b->all.size();
    DatagramAddress to = b->socket.local();
    to.ip = at("127.0.0.1:0").ip;
    CHECK(a->send(to, pattern_bytes(0, 3)).status == DatagramStatus::kDone);
    CHECK(run_until([&] { return b->all.size() > before && b->all.back().bytes.size() == 3; }));
  }

  void closed_from_within() {
    open_both();
    b->closes = true;
    for (int i = 0; i < 3; ++i) sends(*a, *b, pattern_bytes(0, 10));
    CHECK(run_until([&] { return !b->socket.is_open(); }));
    pump_often();
    const size_t count = b->all.size();
    b->closes = false;
    b->open(b->options("127.0.0.1:0"));  // opens again, with all its buffers
    for (uint32_t i = 0; i < 2 * b->shape.buffer_count; ++i) sends(*a, *b, pattern_bytes(0, 10));
    CHECK(run_until([&] { return b->all.size() == count + 2 * b->shape.buffer_count; }));
  }

  void refusals() {
    a = std::make_unique<End>(*sockets);
    DatagramOptions options = a->options("192.0.2.1:5000");
    STRCMP_CONTAINS("choose an address that this machine has",
                    a->socket.open(options).error().cure);
    options = a->options("127.0.0.1:0");
    options.joins_received = true;
    STRCMP_CONTAINS("plan buffers of 65536 bytes", a->socket.open(options).error().cure);
    options = a->options("127.0.0.1:0");
    options.headroom_bytes = 2048;
    STRCMP_CONTAINS("its headroom leaves no space", a->socket.open(options).error().answer);
    options = a->options("127.0.0.1:0");
    options.peer = at("[::1]:5");
    STRCMP_CONTAINS("other address family", a->socket.open(options).error().answer);
    options = a->options("127.0.0.1:0");
    options.owner = {};
    CHECK(!a->socket.open(options).ok());
    CHECK(!a->socket.is_open());
    CHECK(UdpSocket::check_shape({.buffer_count = 0}) != nullptr);
    CHECK(UdpSocket::check_shape({.buffer_count = 1, .buffer_bytes = 100}) != nullptr);
    CHECK(UdpSocket::check_shape({}) == nullptr);
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(UdpSocket, UdpSocketBodies);

BP_BOTH_BACKENDS(UdpSocket, GoesThereAndBackOverIpv4, there_and_back("127.0.0.1:0", "127.0.0.1:0"))
BP_BOTH_BACKENDS(UdpSocket, GoesThereAndBackOverIpv6, there_and_back("[::1]:0", "[::1]:0"))
BP_BOTH_BACKENDS(UdpSocket, TakesOverADescriptorAndDropsWhatCameBefore, taken_over())
BP_BOTH_BACKENDS(UdpSocket, MovesInBatches, in_batches())
BP_BOTH_BACKENDS(UdpSocket, ConnectedItHearsItsPeerAlone, connected())
BP_BOTH_BACKENDS(UdpSocket, SendsFromTheAddressThatIsChosen, chosen_source())
BP_BOTH_BACKENDS(UdpSocket, CarriesEcnOverIpv4, ecn("127.0.0.1:0"))
BP_BOTH_BACKENDS(UdpSocket, CarriesEcnOverIpv6, ecn("[::1]:0"))
BP_BOTH_BACKENDS(UdpSocket, TellsOfWhatWasTruncated, truncated())
BP_BOTH_BACKENDS(UdpSocket, WhatIsKeptStaysUntilItIsReleased, kept())
BP_BOTH_BACKENDS(UdpSocket, LeavesRoomBeforeADatagramWhereItIsAsked, headroom())
BP_BOTH_BACKENDS(UdpSocket, CountsWhatTheSystemDropped, drops_are_counted())
BP_BOTH_BACKENDS(UdpSocket, IsGivenALargeQueueWhereItMayAsk, a_large_queue_is_forced())
BP_BOTH_BACKENDS(UdpSocket, SaysWhatAllowsTheQueueThatWasAskedFor, a_small_queue_is_said())
BP_BOTH_BACKENDS(UdpSocket, TellsWhatDidNotArriveAndLosesNothingElse, unreachable())
BP_BOTH_BACKENDS(UdpSocket, RefusesTheOneThatCannotBeSent, cannot_be_sent())
BP_BOTH_BACKENDS(UdpSocket, CutsOnWhenOneIsRefusedUncutAsWell, cannot_be_sent_uncut_either())
BP_BOTH_BACKENDS(UdpSocket, TellsWhenThereIsRoomAgain, again_and_room())
BP_BOTH_BACKENDS(UdpSocket, SharesAPortWhereBothSaySo, shared_port())
BP_BOTH_BACKENDS(UdpSocket, SharesAGroupWithAllWhoJoinIt, shared_group())
BP_BOTH_BACKENDS(UdpSocket, HearsTheGroupsAndSourcesThatItJoins, multicast())
BP_BOTH_BACKENDS(UdpSocket, SendsToBroadcastAddressesWhereItIsToldTo, broadcast())
BP_BOTH_BACKENDS(UdpSocket, CanBeClosedFromWithin, closed_from_within())
BP_BOTH_BACKENDS(UdpSocket, RefusesWhatMakesNoSense, refusals())
