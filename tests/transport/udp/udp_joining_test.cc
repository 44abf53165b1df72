// Datagrams that the kernel cuts or joins, over both backends, on loopback: each receiver gets the
// datagrams that were sent to it, however the kernel carries them.
#include "transport/udp/udp_socket.h"

#include <cstdio>
#include <random>

#include "tests/support/seed.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/udp/udp_rig.h"

using namespace bedplate;
using namespace bedplate::udp_rig;

class UdpJoiningBodies : public UdpPair {
 public:
  test::Seed seed;

  void teardown() override {
    if (UtestShell::getCurrent()->hasFailed()) std::puts(seed.text());
    UdpPair::teardown();
  }

  // Checks that the receiver gets the requested segments, however they are carried.
  void check_segments(std::span<const std::byte> whole, uint32_t segment_bytes) {
    const size_t count = (whole.size() + segment_bytes - 1) / segment_bytes;
    wait_for(*b, count);
    for (size_t i = 0; i < count; ++i) {
      const auto want =
          whole.subspan(i * segment_bytes)
              .first(std::min<size_t>(segment_bytes, whole.size() - i * segment_bytes));
      CHECK(std::equal(want.begin(), want.end(), b->all[i].bytes.begin(), b->all[i].bytes.end()));
    }
    LONGS_EQUAL(count, counters.sent_datagrams.read());
    LONGS_EQUAL(count, counters.received_datagrams.read());
  }
  void segments_on_send() {
    open_both();
    const auto whole = pattern_bytes(0, 100'000);  // more than the kernel cuts at once
    const uint64_t calls = counters.system_calls.read();
    sends(*a, *b, whole, 1316);
    LONGS_EQUAL(1, counters.system_calls.read() - calls);
    check_segments(whole, 1316);
  }
  void segments_without_the_kernel(const char* local) {
    if (at(local).ip.family == AF_INET6 && !has_ipv6()) BP_SKIP("this machine has no IPv6");
    open_both(local);
    const int one = 1;  // without checksums it refuses to cut
    LONGS_EQUAL(0, setsockopt(a->socket.fd(), SOL_SOCKET, SO_NO_CHECK, &one, sizeof one));
    const auto whole = pattern_bytes(0, 20'000);
    test::StderrCapture log;
    sends(*a, *b, whole, 1316);
    pump_often();
    const std::string said = log.text();
    STRCMP_CONTAINS("they are sent one by one from now on", said.c_str());
    LONGS_EQUAL(1, counters.cutting_refusals.read());
    if (at(local).ip.family == AF_INET) check_segments(whole, 1316);
    b->all.clear();
    sends(*a, *b, whole, 1316);
    pump_often();
    STRCMP_EQUAL(said.c_str(), log.finish().c_str());  // logged once
  }
  // Datagrams of `bytes` bytes, one behind the other in `memory`. The last one may be shorter.
  std::vector<OutgoingDatagram> in_a_row(std::span<const std::byte> memory, uint32_t bytes) {
    std::vector<OutgoingDatagram> made;
    for (size_t at = 0; at < memory.size(); at += bytes) {
      OutgoingDatagram& one = made.emplace_back();
      one.bytes = memory.data() + at;
      one.byte_count = static_cast<uint32_t>(std::min<size_t>(bytes, memory.size() - at));
      one.to = b->socket.local();
    }
    return made;
  }
  // A receiver that accepts joined datagrams gets them as they were sent.
  void joined_on_send() {
    const DatagramShape shape = {.buffer_count = 8, .buffer_bytes = kBigBuffer};
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets, shape);
    DatagramOptions options = b->options("127.0.0.1:0");
    options.joins_received = true;
    b->open(options);
    a->open(a->options("127.0.0.1:0"));
    const auto whole = pattern_bytes(0, 99 * 1316 + 100);
    auto out = in_a_row(whole, 1316);
    CHECK(a->socket.send_batch(out).status == DatagramStatus::kDone);
    wait_for(*b, 3);
    LONGS_EQUAL(49 * 1316, b->all[0].bytes.size());  // 64 KiB less headers
    LONGS_EQUAL(49 * 1316, b->all[1].bytes.size());
    LONGS_EQUAL(1316 + 100, b->all[2].bytes.size());
    LONGS_EQUAL(100, counters.sent_datagrams.read());
    LONGS_EQUAL(100, counters.received_datagrams.read());
    LONGS_EQUAL(whole.size(), counters.sent_bytes.read());
    const auto small = pattern_bytes(7, 70 * 32);  // and at most 64 datagrams
    out = in_a_row(small, 32);
    CHECK(a->socket.send_batch(out).status == DatagramStatus::kDone);
    wait_for(*b, 5);
    LONGS_EQUAL(64 * 32, b->all[3].bytes.size());
  }
  // Sends a random mixture. Each receiver gets exactly its own datagrams, in order.
  void a_mixture() {
    open_both("127.0.0.1:0", {.buffer_count = 512, .buffer_bytes = kBuffer});
    End other(*sockets, {.buffer_count = 512, .buffer_bytes = kBuffer});
    other.open(other.options("127.0.0.1:0"));
    std::mt19937_64 engine(seed.value());
    const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(engine() % limit); };
    const auto bytes = pattern_bytes(0, 4000);
    for (int round = 0; round < 20; ++round) {
      std::vector<OutgoingDatagram> out(100);
      std::vector<const OutgoingDatagram*> wanted[2];
      uint32_t length = 0, to = 0, ecn = 0;
      for (OutgoingDatagram& one : out) {
        if (below(4) == 0) length = below(3) == 0 ? below(3) : below(kBuffer);
        if (below(8) == 0) to = below(2);
        if (below(16) == 0) ecn = below(4);
        one.bytes = bytes.data() + below(1000);
        one.byte_count = length;
        one.to = (to == 0 ? *b : other).socket.local();
        one.ecn = static_cast<Ecn>(ecn);
        wanted[to].push_back(&one);
      }
      const auto sent = out;
      CHECK(a->socket.send_batch(out).status == DatagramStatus::kDone);
      for (uint32_t i = 0; i < 2; ++i) {
        End& end = i == 0 ? *b : other;
        wait_for(end, wanted[i].size());
        for (size_t k = 0; k < wanted[i].size(); ++k) {
          const OutgoingDatagram& one = *wanted[i][k];
          CHECK(end.all[k].bytes == std::vector(one.bytes, one.bytes + one.byte_count));
          CHECK(end.all[k].datagram.ecn == one.ecn);
        }
        end.all.clear();
      }
    }
    other.socket.close();
  }
  // No joined datagram is lost or doubled if the kernel refuses to cut.
  void joining_is_refused() {
    open_both();
    const int one = 1;
    LONGS_EQUAL(0, setsockopt(a->socket.fd(), SOL_SOCKET, SO_NO_CHECK, &one, sizeof one));
    const auto whole = pattern_bytes(0, 20'000);
    auto out = in_a_row(whole, 1316);
    test::StderrCapture log;
    const DatagramsSent result = a->socket.send_batch(out);
    CHECK(result.status == DatagramStatus::kDone);
    LONGS_EQUAL(out.size(), result.sent_count);
    check_segments(whole, 1316);
    STRCMP_CONTAINS("they are sent one by one from now on", log.finish().c_str());
    LONGS_EQUAL(1, counters.cutting_refusals.read());
  }
  void joined_on_receive() {
    const DatagramShape shape = {.buffer_count = 8, .buffer_bytes = kBigBuffer};
    a = std::make_unique<End>(*sockets);
    b = std::make_unique<End>(*sockets, shape);
    DatagramOptions options = b->options("127.0.0.1:0");
    options.joins_received = true;
    b->open(options);
    a->open(a->options("127.0.0.1:0"));
    const auto whole = pattern_bytes(0, 40 * 1316 + 100);
    sends(*a, *b, whole, 1316);
    wait_for(*b, 1);
    CHECK(b->all[0].bytes == whole);
    LONGS_EQUAL(1316, b->all[0].datagram.segment_bytes);
    LONGS_EQUAL(41, counters.received_datagrams.read());
    sends(*a, *b, pattern_bytes(0, 50));
    wait_for(*b, 2);
    LONGS_EQUAL(0, b->all[1].datagram.segment_bytes);
  }
};

BP_GROUPS_OF_BOTH_BACKENDS(UdpJoining, UdpJoiningBodies);

BP_BOTH_BACKENDS(UdpJoining, CutsIntoSegmentsInOneCall, segments_on_send())
BP_BOTH_BACKENDS(UdpJoining, CutsItselfWhereTheKernelRefuses,
                 segments_without_the_kernel("127.0.0.1:0"))
BP_BOTH_BACKENDS(UdpJoining, SendsThoseOfOneAddressAsOneMessage, joined_on_send())
BP_BOTH_BACKENDS(UdpJoining, JoinsNothingThatDiffers, a_mixture())
BP_BOTH_BACKENDS(UdpJoining, SendsEachByItselfWhereJoiningIsRefused, joining_is_refused())
BP_BOTH_BACKENDS(UdpJoining, TellsHowWhatWasJoinedIsCut, joined_on_receive())
