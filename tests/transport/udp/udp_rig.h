// A datagram socket for tests, with a record of its callbacks.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/transport/sockets/stream_sockets_fixture.h"
#include "transport/udp/udp_socket.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::udp_rig {

inline DatagramAddress at(const char* text) {
  auto address = parse_datagram_address(text);
  CHECK(address.ok());
  return address.value();
}

// One of the two ends, with a record of its callbacks.
struct End {
  struct Got {
    std::vector<std::byte> bytes;
    ReceivedDatagram datagram;
  };
  DatagramShape shape;
  std::vector<std::byte> memory;
  UdpSocket socket;
  std::vector<Got> all;
  std::vector<std::pair<int, DatagramAddress>> failures;
  uint32_t room_count = 0;
  bool keeps = false;
  bool closes = false;

  explicit End(StreamSockets& sockets, DatagramShape its_shape = {})
      : shape(its_shape), memory(shape.bytes()), socket(sockets, memory, shape) {
    all.reserve(4096);
  }
  ~End() { socket.close(); }

  DatagramOptions options(const char* local) {
    DatagramOptions made;
    made.local = at(local);
    made.owner.context = this;
    made.owner.received = [](void* self, std::span<ReceivedDatagram> some) noexcept {
      static_cast<End*>(self)->take(some);
    };
    made.owner.has_room = [](void* self) noexcept { ++static_cast<End*>(self)->room_count; };
    made.owner.failed = [](void* self, int number, const DatagramAddress& to) noexcept {
      static_cast<End*>(self)->failures.emplace_back(number, to);
    };
    return made;
  }
  void take(std::span<ReceivedDatagram> some) {
    for (ReceivedDatagram& one : some) {
      one.is_kept = keeps;
      all.push_back({{one.bytes, one.bytes + one.byte_count}, one});
    }
    if (closes) socket.close();
  }
  void open(const DatagramOptions& how) {
    auto opened = socket.open(how);
    if (!opened.ok()) FAIL(opened.error().answer);
    LONGS_EQUAL(0, socket.start());
  }
  DatagramsSent send(const DatagramAddress& to, std::span<const std::byte> bytes,
                     uint32_t segment_bytes = 0) {
    OutgoingDatagram one;
    one.bytes = bytes.data();
    one.byte_count = static_cast<uint32_t>(bytes.size());
    one.segment_bytes = segment_bytes;
    one.to = to;
    return socket.send_batch({&one, 1});
  }
};

inline constexpr uint32_t kBuffer = 2048;
inline constexpr uint32_t kBigBuffer = 65536;

inline bool is_same(const IpAddress& one, const char* other) {
  return one.family != 0 && DatagramAddress{one, 0, 0}.text() == at(other).text();
}

// Two ends on one loop.
class UdpPair : public SocketsFixture {
 public:
  std::unique_ptr<End> a, b;

  void teardown() override {
    a.reset();
    b.reset();
    SocketsFixture::teardown();
  }
  void open_both(const char* local = "127.0.0.1:0", DatagramShape shape = {}) {
    a = std::make_unique<End>(*sockets, shape);
    b = std::make_unique<End>(*sockets, shape);
    b->open(b->options(local));
    a->open(a->options(local));
  }
  void pump_often() {
    for (int i = 0; i < 20; ++i) pump();
  }
  void wait_for(End& end, size_t count) {
    CHECK(run_until([&] { return end.all.size() >= count; }));
    LONGS_EQUAL(count, end.all.size());
  }
  void sends(End& from, End& to, std::span<const std::byte> bytes, uint32_t segment_bytes = 0) {
    const DatagramsSent result = from.send(to.socket.local(), bytes, segment_bytes);
    CHECK(result.status == DatagramStatus::kDone);
    LONGS_EQUAL(1, result.sent_count);
  }
  // Whether this machine has IPv6.
  bool has_ipv6() {
    End probe(*sockets);
    return probe.socket.open(probe.options("[::1]:0")).ok();
  }
};

}  // namespace bedplate::udp_rig
