// Ports over rings and over the null device: a port receives the very buffers that the other port
// sends, and all frames are counted.
#include "transport/dpdk/port/port.h"

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rte_mbuf.h>

#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/dpdk/started_eal.h"
#include "transport/dpdk/port/port_queue_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

class KeepsFrames final : public FrameReceiver {
 public:
  void receive(std::span<rte_mbuf*> frames) noexcept override {
    all.insert(all.end(), frames.begin(), frames.end());
  }
  uint32_t advance() noexcept override { return std::exchange(due_count, 0); }
  uint64_t idle_max_ns() const noexcept override { return idle_ns; }

  std::vector<rte_mbuf*> all;
  uint32_t due_count = 0;
  uint64_t idle_ns = PollSource::kUnlimitedNs;
};

// A port with one queue, open and started.
struct Rig {
  PortCounters counters;
  PortQueueCounters queue_counters;
  Port port;
  KeepsFrames receiver;
  std::unique_ptr<PortQueue> queue;

  Rig(const char* name, const char* device, uint32_t buffer_count = 256) {
    PortOptions options;
    options.name = name;
    options.device = parse_port_device(device).take();
    options.buffer_count = buffer_count;
    options.descriptor_count = 64;
    options.memory = test::take_buffers(mbuf_shape(options.mtu_bytes, buffer_count).bytes());
    options.counters = &counters;
    test::started_eal();
    check(port.open(options));
    queue = std::make_unique<PortQueue>(
        PortQueue::Options{.port = &port, .receiver = &receiver, .counters = &queue_counters});
    check(port.start());
  }
  ~Rig() {
    for (rte_mbuf* frame : receiver.all) rte_pktmbuf_free(frame);
    port.close();
  }

  static void check(const Result<void>& result) {
    CHECK_TEXT(result.ok(), result.ok() ? "" : result.error().answer);
  }
  rte_mbuf* frame(const char* text) {
    rte_mbuf* made = queue->allocate();
    CHECK(made != nullptr);
    const size_t length = std::strlen(text);
    std::memcpy(rte_pktmbuf_append(made, static_cast<uint16_t>(length)), text, length);
    return made;
  }
  uint32_t send(std::vector<rte_mbuf*> frames) { return queue->send(frames); }
};

}  // namespace

TEST_GROUP(Port){};

TEST(Port, WhatOneSendsTheOtherReceivesInTheSameBuffers) {
  Rig left("left", "ring:cross");
  Rig right("right", "ring:cross");
  rte_mbuf* frames[] = {left.frame("one"), left.frame("two!"), left.frame("three")};
  LONGS_EQUAL(3, left.queue->send(frames));
  LONGS_EQUAL(3, right.queue->poll(64));
  LONGS_EQUAL(3, right.receiver.all.size());
  for (size_t i = 0; i < 3; ++i) POINTERS_EQUAL(frames[i], right.receiver.all[i]);
  LONGS_EQUAL(0, left.queue->poll(64));  // nothing comes back

  // Sends the same buffers on through another port.
  Rig out("out", "ring:further");
  Rig end("end", "ring:further");
  LONGS_EQUAL(3, out.queue->send(right.receiver.all));
  right.receiver.all.clear();
  LONGS_EQUAL(3, end.queue->poll(64));
  for (size_t i = 0; i < 3; ++i) POINTERS_EQUAL(frames[i], end.receiver.all[i]);
  MEMCMP_EQUAL("three", rte_pktmbuf_mtod(end.receiver.all[2], char*), 5);

  LONGS_EQUAL(3, left.queue_counters.sent_frames.read());
  LONGS_EQUAL(12, left.queue_counters.sent_bytes.read());
  LONGS_EQUAL(3, right.queue_counters.received_frames.read());
  LONGS_EQUAL(12, right.queue_counters.received_bytes.read());
  LONGS_EQUAL(1, right.queue_counters.received_bursts.read());
}

TEST(Port, WhatAFullQueueDoesNotTakeStaysTheSendersAndIsCounted) {
  Rig port("full", "ring:full");
  Rig peer("empty", "ring:full");
  std::vector<rte_mbuf*> frames;
  for (int i = 0; i < 100; ++i) frames.push_back(port.frame("x"));
  const uint32_t taken = port.queue->send(frames);
  LONGS_EQUAL(63, taken);  // the capacity of a ring of 64
  LONGS_EQUAL(37, port.queue_counters.refused_frames.read());
  LONGS_EQUAL(63, port.queue_counters.sent_bytes.read());
  for (uint32_t i = taken; i < 100; ++i) {
    LONGS_EQUAL(1, rte_mbuf_refcnt_read(frames[i]));
    rte_pktmbuf_free(frames[i]);
  }
  LONGS_EQUAL(60, peer.queue->poll(60));  // no more than the budget
  LONGS_EQUAL(3, peer.queue->poll(60));
}

TEST(Port, BuffersThatAreAllInUseAreSaidAndCounted) {
  Rig port("few", "null", 64);
  std::vector<rte_mbuf*> all;
  while (rte_mbuf* one = port.queue->allocate()) all.push_back(one);
  LONGS_EQUAL(64, all.size());
  LONGS_EQUAL(1, port.queue_counters.no_buffer.read());
  port.port.watch();
  LONGS_EQUAL(0, port.counters.free_buffers.read());
  for (rte_mbuf* one : all) rte_pktmbuf_free(one);
  port.port.watch();
  LONGS_EQUAL(64, port.counters.free_buffers.read());
  LONGS_EQUAL(64, port.counters.used_peak_buffers.read());
  LONGS_EQUAL(64, port.counters.buffers.read());
}

TEST(Port, ABufferHoldsAFrameOfItsMtu) {
  CHECK(mbuf_shape(1500, 64).frame_bytes >= 1500 + 14 + 4 + 4);
  CHECK(mbuf_shape(9000, 64).frame_bytes >= 9000 + 14 + 4 + 4);
}

TEST(Port, WhatADeviceDoesNotDoIsToldAndDoneInSoftware) {
  test::StderrCapture capture;
  Rig port("told", "null");
  const std::string said = capture.finish();
  CHECK_FALSE(port.queue->offloads().udp_checksum);
  CHECK_FALSE(port.port.has(kReceiveChecksum));
  LONGS_EQUAL(0, port.counters.offloads.read() & kIpv4Checksum);
  STRCMP_CONTAINS("port told (null): the device does ", said.c_str());
  STRCMP_CONTAINS("in software: receive checksum, ipv4 checksum, udp checksum", said.c_str());
  STRCMP_CONTAINS("port told: the link is up", said.c_str());
  LONGS_EQUAL(static_cast<long>(PortState::kUp), port.counters.state.read());
  LONGS_EQUAL(1, port.counters.link_ups.read());
}

TEST(Port, ADeviceThatCannotBeHadIsSaidByName) {
  test::started_eal();
  test::StderrCapture capture;
  PortOptions options;
  options.name = "lost";
  options.device = parse_port_device("af_packet:no-such-if").take();
  options.buffer_count = 64;
  options.memory = test::take_buffers(mbuf_shape(options.mtu_bytes, 64).bytes());
  Port port;
  const auto opened = port.open(options);
  CHECK_FALSE(opened.ok());
  STRCMP_EQUAL("attaching the port lost (af_packet:no-such-if)", opened.error().doing);
  CHECK(opened.error().answer[0] != '\0');
  CHECK_FALSE(port.is_open());
}

TEST(Port, TwoPortsAtMostShareARing) {
  Rig first("first", "ring:pair");
  Rig second("second", "ring:pair");
  PortOptions options;
  options.name = "third";
  options.device = parse_port_device("ring:pair").take();
  options.buffer_count = 64;
  options.memory = test::take_buffers(mbuf_shape(options.mtu_bytes, 64).bytes());
  Port third;
  const auto opened = third.open(options);
  CHECK_FALSE(opened.ok());
  STRCMP_EQUAL("two ports already use it", opened.error().answer);
}

TEST(Port, BothPortsOfARingHaveAsManyQueues) {
  Rig first("one-queue", "ring:uneven");
  PortOptions options;
  options.name = "two-queues";
  options.device = parse_port_device("ring:uneven").take();
  options.queue_count = 2;
  options.buffer_count = 64;
  options.memory = test::take_buffers(mbuf_shape(options.mtu_bytes, 64).bytes());
  Port second;
  const auto opened = second.open(options);
  CHECK_FALSE(opened.ok());
  STRCMP_EQUAL("it has 2 queues, and the other port of the ring has 1", opened.error().answer);
  STRCMP_EQUAL("name as many shards in both [[port]]", opened.error().cure);
}

TEST(Port, AnIdleQueueIsLookedAtLessAndLess) {
  Rig port("idle", "ring:idle");
  Rig peer("awake", "ring:idle");
  uint64_t before = 0;
  for (int i = 0; i < 60; ++i) {
    port.queue->announce_sleep();
    CHECK(port.queue->sleep_max_ns() >= before);
    before = port.queue->sleep_max_ns();
  }
  LONGS_EQUAL(5 * kNsPerMs, before);
  port.receiver.idle_ns = 5;  // a deadline of the receiver comes first
  LONGS_EQUAL(5, port.queue->sleep_max_ns());
  port.receiver.idle_ns = PollSource::kUnlimitedNs;
  peer.send({peer.frame("wake")});
  LONGS_EQUAL(1, port.queue->poll(64));
  port.queue->announce_sleep();
  CHECK(port.queue->sleep_max_ns() <= 100 * kNsPerUs);
}

TEST(Port, WhatIsDueIsDoneWithAndWithoutFrames) {
  Rig port("due", "ring:due");
  Rig peer("due-peer", "ring:due");
  port.receiver.due_count = 2;
  LONGS_EQUAL(2, port.queue->poll(64));
  port.receiver.due_count = 2;
  peer.send({peer.frame("and a frame")});
  LONGS_EQUAL(3, port.queue->poll(64));
}

TEST(Port, CutOffItNeitherReceivesNorSends) {
  Rig port("cut", "ring:cut");
  Rig peer("whole", "ring:cut");
  peer.send({peer.frame("in the ring")});
  port.receiver.idle_ns = 0;  // work is due
  CHECK_EQUAL(0, port.queue->sleep_max_ns());
  port.queue->cut_off();
  CHECK(port.queue->sleep_max_ns() == PollSource::kUnlimitedNs);
  LONGS_EQUAL(0, port.queue->poll(64));
  rte_mbuf* frame = port.frame("later");
  LONGS_EQUAL(0, port.send({frame}));
  LONGS_EQUAL(1, port.queue_counters.refused_frames.read());
  rte_pktmbuf_free(frame);
}

#if BP_DEBUG
TEST(Port, WhileItIsPolledAQueueIsThatThreadsAlone) {
  // Lets another thread use the queue from within a poll.
  struct Intruder final : FrameReceiver {
    PortQueue* queue = nullptr;
    test::Ended sent;
    test::Ended allocated;
    test::Ended announced;
    void receive(std::span<rte_mbuf*> frames) noexcept override {
      for (rte_mbuf* frame : frames) rte_pktmbuf_free(frame);
      std::thread([this] {
        sent = test::run_forked([this] { queue->send({}); });
        allocated = test::run_forked([this] { queue->allocate(); });
        announced = test::run_forked([this] { queue->announce_sleep(); });
      }).join();
    }
  } intruder;
  Rig port("own", "ring:own");
  Rig peer("own-peer", "ring:own");
  intruder.queue = port.queue.get();
  port.queue->set_receiver(intruder);
  peer.send({peer.frame("polled")});
  LONGS_EQUAL(1, port.queue->poll(64));
  test::check_died(intruder.sent, "owner_.is_caller()", __FILE__, __LINE__);
  test::check_died(intruder.allocated, "owner_.is_caller()", __FILE__, __LINE__);
  test::check_died(intruder.announced, "owner_.is_caller()", __FILE__, __LINE__);
}
#endif
