// The data path's law for ports: a packet layer passes a received datagram to a socket, which sends
// it out by another port. Once this is warm, nothing is allocated, freed, locked or asked of the
// system, and no byte of the payload is copied: its address stays the same. The ports are rings,
// whose driver neither allocates nor copies.
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <rte_mbuf.h>

#include "tests/support/datapath_law.h"
#include "tests/transport/dpdk/net/frames.h"
#include "tests/transport/dpdk/started_eal.h"
#include "transport/dpdk/net/net_stack.h"
#include "transport/dpdk/net/port_datagram_socket.h"
#include "transport/dpdk/port/port.h"
#include "transport/dpdk/port/port_queue_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::frames;

namespace {

constexpr uint32_t kWarmRounds = 300;
constexpr uint32_t kWatchedRounds = 1000;
constexpr NetTime kTime = {1'000'000'000, 1'700'000'000'000'000'000};

// Holds the last received frame, and frees the ones before it.
class KeepsLast final : public FrameReceiver {
 public:
  ~KeepsLast() override { rte_pktmbuf_free(last); }
  void receive(std::span<rte_mbuf*> frames) noexcept override {
    for (rte_mbuf* frame : frames) {
      rte_pktmbuf_free(last);
      last = frame;
    }
  }
  rte_mbuf* last = nullptr;
};

// One end of a ring.
struct RingEnd {
  Port port;
  KeepsLast kept;
  std::unique_ptr<PortQueue> queue;

  RingEnd(const char* name, const char* device) {
    test::started_eal();
    PortOptions options;
    options.name = name;
    options.device = parse_port_device(device).take();
    std::memcpy(options.mac.addr_bytes, kOwn, sizeof kOwn);
    options.buffer_count = 512;
    options.descriptor_count = 64;
    options.memory = test::take_buffers(mbuf_shape(options.mtu_bytes, 512).bytes());
    CHECK(port.open(options).ok());
    queue = std::make_unique<PortQueue>(PortQueue::Options{.port = &port, .receiver = &kept});
    CHECK(port.start().ok());
  }
  ~RingEnd() { port.close(); }

  void send(const Bytes& bytes) {
    rte_mbuf* frame = queue->allocate();
    std::memcpy(rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    CHECK_EQUAL(1, queue->send({&frame, 1}));
  }
};

// A packet layer on one end of a ring, with a peer at the other end.
struct Station {
  class Receiver final : public FrameReceiver {
   public:
    void receive(std::span<rte_mbuf*> frames) noexcept override { stack->receive(frames, kTime); }
    uint32_t advance() noexcept override { return stack->advance(kTime); }
    NetStack* stack = nullptr;
  };

  RingEnd end;
  RingEnd peer;
  NetCounters counters;
  Receiver receiver;
  std::unique_ptr<NetStack> stack;

  Station(const char* name, const char* peer_name, const char* ring)
      : end(name, ring), peer(peer_name, ring) {
    NetOptions options;
    options.name = name;
    options.addresses[0] = *parse_ip_prefix("192.0.2.1/24");
    options.address_count = 1;
    options.counters = &counters;
    stack = std::make_unique<NetStack>(*end.queue, options);
    receiver.stack = stack.get();
    end.queue->set_receiver(receiver);
    stack->start(kTime);
    DatagramRoute route;
    CHECK_EQUAL(0, stack->socket_parts().route_finder.find(frames::ip("192.0.2.9"), {},
                                                           kTime.now_ns, route));
    peer.send(to_us(0x0806, arp(2, mac(kPeer), "192.0.2.9", "192.0.2.1", mac(kOwn))));
    end.queue->poll(64);
    while (peer.queue->poll(64) > 0) continue;
  }
};

// Forwards each datagram without a copy, through the socket of another station.
struct SendsOn {
  PortDatagramSocket in;
  PortDatagramSocket out;
  DatagramAddress to = parse_datagram_address("192.0.2.9:7000").take();
  uint32_t sent_count = 0;
  const std::byte* last = nullptr;

  SendsOn(Station& from, Station& by)
      : in(from.stack->socket_parts(), {}), out(by.stack->socket_parts(), {}) {
    DatagramOptions options;
    options.local = parse_datagram_address("0.0.0.0:5004").take();
    options.owner.context = this;
    options.owner.received = [](void*, std::span<ReceivedDatagram>) noexcept {};
    CHECK(out.open(options).ok());
    options.owner.received = [](void* self, std::span<ReceivedDatagram> some) noexcept {
      auto& its = *static_cast<SendsOn*>(self);
      for (ReceivedDatagram& one : some) {
        OutgoingDatagram next;
        next.bytes = its.last = one.bytes;
        next.byte_count = one.byte_count;
        next.to = its.to;
        its.sent_count += its.out.send_batch({&next, 1}).sent_count;
      }
    };
    CHECK(in.open(options).ok());
    in.start();
    out.start();
  }
};

}  // namespace

TEST_GROUP(PortLaw){};

TEST(PortLaw, ADatagramFromPortToPort) {
  BP_SKIP_WITHOUT_LAW();
  Station left("law-left", "law-left-peer", "ring:law-left");
  Station right("law-right", "law-right-peer", "ring:law-right");
  SendsOn relay(left, right);
  const Bytes bytes = udp_frame("192.0.2.9", 7000, "192.0.2.1", 5004, Bytes(1316, 0x47));
  std::optional<test::LawWatch> watch;
  uint32_t moved_count = 0;
  for (uint32_t round = 0; round < kWarmRounds + kWatchedRounds; ++round) {
    if (round == kWarmRounds) watch.emplace();
    // The peer writes a frame into its mbuf, where the bytes stay.
    rte_mbuf* frame = left.peer.queue->allocate();
    if (frame == nullptr) break;
    char* const at = rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes.size()));
    std::memcpy(at, bytes.data(), bytes.size());
    const std::byte* const payload = reinterpret_cast<std::byte*>(at) + bytes.size() - 1316;
    (void)left.peer.queue->send({&frame, 1});
    left.end.queue->poll(64);
    right.end.queue->poll(64);
    right.peer.queue->poll(64);
    const rte_mbuf* last = right.peer.kept.last;
    const bool is_moved = relay.last == payload && last != nullptr && last->nb_segs == 2 &&
                          rte_pktmbuf_mtod(last->next, const std::byte*) == payload;
    moved_count += is_moved ? 1 : 0;
  }
  CHECK_EQUAL(0, watch->end());
  CHECK_EQUAL(kWarmRounds + kWatchedRounds, relay.sent_count);
  // The last peer reads the payload at the address where the first peer wrote it.
  CHECK_EQUAL(kWarmRounds + kWatchedRounds, moved_count);
  CHECK_EQUAL(0, right.counters.copied_bytes.read());
}

TEST(PortLaw, FramesThatAreSentOn) {
  BP_SKIP_WITHOUT_LAW();
  RingEnd left("on-left", "ring:on-left"), left_peer("on-left-peer", "ring:on-left");
  RingEnd right("on-right", "ring:on-right"), right_peer("on-right-peer", "ring:on-right");
  std::optional<test::LawWatch> watch;
  uint32_t moved_count = 0;
  for (uint32_t round = 0; round < kWarmRounds + kWatchedRounds; ++round) {
    if (round == kWarmRounds) watch.emplace();
    rte_mbuf* frame = left_peer.queue->allocate();
    if (frame == nullptr) break;
    (void)left_peer.queue->send({&frame, 1});
    left.queue->poll(64);
    rte_mbuf* came = std::exchange(left.kept.last, nullptr);
    (void)right.queue->send({&came, 1});
    right_peer.queue->poll(64);
    moved_count += right_peer.kept.last == frame ? 1 : 0;
  }
  CHECK_EQUAL(0, watch->end());
  CHECK_EQUAL(kWarmRounds + kWatchedRounds, moved_count);
}
