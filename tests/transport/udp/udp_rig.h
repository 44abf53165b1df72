// An end of a conversation by datagrams for tests, with what its socket told it.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "transport/udp/udp_socket.h"

#include "CppUTest/TestHarness.h"

namespace bedplate::udp_rig {

inline DatagramAddress at(const char* text) {
  auto address = parse_datagram_address(text);
  CHECK(address.ok());
  return address.value();
}

// One of the two ends, with what it was told.
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

}  // namespace bedplate::udp_rig
