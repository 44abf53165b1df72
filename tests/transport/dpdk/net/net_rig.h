// A packet layer over a simulated port, with a record of the callbacks to its sockets' owners.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/transport/dpdk/net/frames.h"
#include "tests/transport/dpdk/net/made_up_port.h"
#include "transport/dpdk/net/net_stack.h"
#include "transport/dpdk/net/port_datagram_socket.h"

namespace bedplate::made_up {

inline DatagramAddress at(const std::string& text) {
  auto address = parse_datagram_address(text);
  must(address.ok(), "an address is none");
  return address.value();
}

inline IpPrefix prefix(const char* text) {
  const auto made = parse_ip_prefix(text);
  must(made.has_value(), "a prefix is none");
  return *made;
}

// 192.0.2.1/24 and 2001:db8::1/64, with the gateways .254 and ::fe.
inline NetOptions usual_options() {
  NetOptions options;
  options.name = "port0";
  options.addresses[0] = prefix("192.0.2.1/24");
  options.addresses[1] = prefix("2001:db8::1/64");
  options.address_count = 2;
  options.gateway4 = frames::ip("192.0.2.254");
  options.gateway6 = frames::ip("2001:db8::fe");
  return options;
}

// A socket with a record of its callbacks.
struct End {
  struct Got {
    Bytes bytes;
    ReceivedDatagram datagram;
  };
  PortDatagramSocket socket;
  std::vector<Got> all;
  std::vector<std::pair<int, std::string>> failures;
  uint32_t room_count = 0;
  bool keeps = false;
  void (*meanwhile)(End& self) = nullptr;  // called within received()

  explicit End(NetStack& stack, DatagramShape shape = {}) : socket(stack.socket_parts(), shape) {
    all.reserve(256);
  }

  DatagramOptions options(const std::string& local) {
    DatagramOptions made;
    made.local = at(local);
    made.owner.context = this;
    made.owner.received = [](void* self, std::span<ReceivedDatagram> some) noexcept {
      auto& end = *static_cast<End*>(self);
      for (ReceivedDatagram& one : some) {
        one.is_kept = end.keeps;
        const auto* bytes = reinterpret_cast<const uint8_t*>(one.bytes);
        end.all.push_back({{bytes, bytes + one.byte_count}, one});
      }
      if (end.meanwhile != nullptr) end.meanwhile(end);
    };
    made.owner.has_room = [](void* self) noexcept { ++static_cast<End*>(self)->room_count; };
    made.owner.failed = [](void* self, int number, const DatagramAddress& to) noexcept {
      static_cast<End*>(self)->failures.emplace_back(number, to.text());
    };
    return made;
  }
  Result<void> open(const DatagramOptions& how) {
    auto opened = socket.open(how);
    if (opened.ok()) socket.start();
    return opened;
  }
  Result<void> open(const std::string& local) { return open(options(local)); }

  DatagramsSent send(const std::string& to, const void* bytes, size_t count,
                     uint32_t segment_bytes = 0) {
    OutgoingDatagram one;
    one.bytes = static_cast<const std::byte*>(bytes);
    one.byte_count = static_cast<uint32_t>(count);
    one.segment_bytes = segment_bytes;
    if (!to.empty()) one.to = at(to);
    return socket.send_batch({&one, 1});
  }
  DatagramsSent send(const std::string& to, const std::string& words) {
    return send(to, words.data(), words.size());
  }
};

struct Rig {
  explicit Rig(const NetOptions& how = usual_options(), uint32_t mbuf_count = 256)
      : port(mbuf_count) {
    options = how;
    options.counters = &counters;
  }

  NetStack& make() {
    stack = std::make_unique<NetStack>(port, options);
    return *stack;
  }
  // Makes and starts the stack, and discards the frames that it sends at its start.
  NetStack& start() {
    make();
    stack->start(time());
    advance();
    port.sent.clear();
    return *stack;
  }
  NetTime time() const { return {now_ns, 1'700'000'000'000'000'000 + now_ns}; }
  void receive(rte_mbuf* frame) {
    stack->receive({&frame, 1}, time());
    advance();
  }
  void receive(const Bytes& bytes) { receive(port.frame(bytes)); }
  void advance(uint64_t by_ns = 0) {
    now_ns += by_ns;
    stack->advance(time());
    must(stack->is_valid(), "the invariants do not hold");
  }
  uint64_t dropped(PacketDrop cause) const {
    return counters.drops[static_cast<uint32_t>(cause)].read();
  }
  uint64_t dropped() const {
    uint64_t count = 0;
    for (const Counter& one : counters.drops) count += one.read();
    return count;
  }
  // Answers ARP or neighbour discovery as `peer`.
  void answer_for(const std::string& peer) {
    using namespace frames;
    if (frames::is_ipv6(peer)) {
      receive(icmp6_frame(peer, "2001:db8::1", advertisement(peer, mac(kPeer), 0x60)));
    } else {
      receive(to_us(0x0806, arp(2, mac(kPeer), peer, "192.0.2.1", mac(kOwn))));
    }
  }
  // Lets the stack learn the MAC of `peer`.
  void know(const std::string& peer) {
    DatagramRoute route;
    must(stack->socket_parts().route_finder.find(frames::ip(peer), {}, now_ns, route) == 0,
         "there is no route");
    answer_for(peer);
    port.sent.clear();
    port.flags.clear();
  }

  Port port;
  NetCounters counters;
  NetOptions options;
  uint64_t now_ns = 1'000'000'000;
  std::unique_ptr<NetStack> stack;
};

}  // namespace bedplate::made_up
