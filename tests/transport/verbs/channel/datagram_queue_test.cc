// Datagrams: small, unreliable, and for any connected peer. Datagrams of strangers are dropped and
// counted.
#include "transport/verbs/channel/datagram_queue_datapath.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/transport/verbs/verbs_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// A queue that belongs to no provider.
struct LoneQueue {
  static constexpr uint32_t kCount = 16;
  static constexpr uint32_t kKey = 7;

  explicit LoneQueue(VerbsRig& rig, uint32_t wrong_by = 0, DatagramCounters* counters = nullptr)
      : domain(rig.device().domain()), port(rig.device().port()) {
    constexpr uint64_t kBytes = DatagramQueue::memory_bytes(kCount);
    memory.reset(static_cast<std::byte*>(std::aligned_alloc(4096, kBytes)));
    key = VerbsDevice::local_key(rig.keys().key(memory.get(), kBytes).key);
    completions = ibv_create_cq(rig.device().context(), 64, nullptr, nullptr, 0);
    CHECK(queue
              .create({.device = &rig.device(),
                       .completions = completions,
                       .memory = {memory.get(), kBytes},
                       .memory_key = key + wrong_by,
                       .count = kCount,
                       .peer_count_max = 1,
                       .key = kKey,
                       .counters = counters})
              .ok());
  }
  ~LoneQueue() {
    queue.destroy();  // before its completion queue
    ibv_destroy_cq(completions);
  }
  // Sends a datagram that no DatagramQueue would send, by a queue pair of its own. Returns whether
  // it was sent.
  bool send_raw(const DatagramPeer& to, uint32_t bytes) {
    ibv_qp_init_attr made = {};
    made.send_cq = made.recv_cq = completions;
    made.cap = {.max_send_wr = 1,
                .max_recv_wr = 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    made.qp_type = IBV_QPT_UD;
    ibv_qp* raw = ibv_create_qp(domain, &made);
    ibv_qp_attr state = {};
    state.qp_state = IBV_QPS_INIT;
    state.port_num = port.port;
    ibv_modify_qp(raw, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    state.qp_state = IBV_QPS_RTR;
    ibv_modify_qp(raw, &state, IBV_QP_STATE);
    state.qp_state = IBV_QPS_RTS;
    ibv_modify_qp(raw, &state, IBV_QP_STATE | IBV_QP_SQ_PSN);
    ibv_ah_attr attributes = {};
    attributes.port_num = port.port;
    attributes.is_global = 1;
    attributes.grh.dgid = to.gid;
    attributes.grh.sgid_index = port.gid_index;
    attributes.grh.hop_limit = 64;
    ibv_ah* handle = ibv_create_ah(domain, &attributes);
    ibv_sge piece = {reinterpret_cast<uintptr_t>(memory.get()), bytes, key};
    ibv_send_wr request = {};
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &piece;
    request.num_sge = 1;
    request.wr.ud = {handle, to.queue, to.key};
    ibv_send_wr* refused = nullptr;
    ibv_wc completion = {};
    const bool is_sent = ibv_post_send(raw, &request, &refused) == 0;
    while (is_sent && ibv_poll_cq(completions, 1, &completion) == 0) {
    }
    ibv_destroy_qp(raw);
    ibv_destroy_ah(handle);
    return is_sent && completion.status == IBV_WC_SUCCESS;
  }
  // Returns the number of completions.
  uint32_t poll() {
    ibv_wc completion = {};
    uint32_t count = 0;
    for (; count < 2 * kCount && ibv_poll_cq(completions, 1, &completion) == 1; ++count) {
      queue.handle(completion, [](uint16_t, AmId, std::span<const std::byte>) {});
    }
    return count;
  }

  struct Freed {
    void operator()(std::byte* block) const noexcept { std::free(block); }
  };
  ibv_pd* domain;
  const VerbsPort& port;
  std::unique_ptr<std::byte, Freed> memory;
  uint32_t key = 0;
  ibv_cq* completions = nullptr;
  DatagramQueue queue;
};

}  // namespace

TEST_GROUP(VerbsDatagrams) {
  std::unique_ptr<VerbsRig> rig;
  ReceivedTexts inbox;  // of b

  bool start(uint32_t count = 16, bool connects = true) {
    if (!has_verbs_device()) return false;
    VerbsRigOptions options;
    options.shape.datagram_count = count;
    rig = std::make_unique<VerbsRig>(options);
    listen();
    if (connects) CHECK(rig->connect());
    return true;
  }
  void listen() { inbox.listen(*rig->b.messenger); }
  SendStatus send(const std::string& text) {
    return rig->a.verbs->send_datagram(rig->a.to("b"), kData, view(text));
  }
  uint64_t strange() { return rig->b.counters.datagrams.strange.read(); }
};

TEST(VerbsDatagrams, ArriveUpToTheMtu) {
  if (!start()) BP_SKIP(kNoVerbs);
  const uint32_t max = rig->a.verbs->datagram_bytes_max(rig->a.to("b"));
  CHECK(max >= 256 - sizeof(DatagramHeader) && max <= 4096 - sizeof(DatagramHeader));
  std::string longest(max, 'x');
  longest.back() = 'y';
  for (const std::string& text : {std::string(), std::string("hello"), longest}) {
    CHECK(send(text) == SendStatus::kDone);
    CHECK(rig->poll_until([&] { return inbox.payloads.size() == 1; }));
    CHECK(text == inbox.payloads[0]);
    inbox.payloads.clear();
  }
  CHECK(send(longest + "x") == SendStatus::kTooLong);
  LONGS_EQUAL(3, rig->a.counters.datagrams.sent.read());
  LONGS_EQUAL(3, rig->b.counters.datagrams.received.read());
  LONGS_EQUAL(0, strange() + rig->b.counters.datagrams.malformed.read());
}

TEST(VerbsDatagrams, ManyArriveWhereThereIsRoomAndTheRestIsLost) {
  if (!start()) BP_SKIP(kNoVerbs);
  // b does not poll, so datagrams without a buffer are lost without an error.
  uint32_t sent = 0;
  const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
  while (sent < 100 && monotonic_ns() < deadline_ns) {
    if (send(std::to_string(sent)) == SendStatus::kDone) ++sent;
    else rig->a.messenger->poll(16);
  }
  LONGS_EQUAL(100, sent);
  CHECK(rig->poll_until([&] { return inbox.payloads.size() >= 16; }));
  for (int i = 0; i < 100; ++i) rig->poll();
  CHECK(inbox.payloads.size() < 100);
  const std::set<std::string> distinct(inbox.payloads.begin(), inbox.payloads.end());
  LONGS_EQUAL(inbox.payloads.size(), distinct.size());
  // While b polls, all datagrams come, beside the connection's own messages.
  inbox.payloads.clear();
  for (sent = 0; sent < 1000; ++sent) {
    CHECK(rig->poll_until([&] { return send(std::to_string(sent)) == SendStatus::kDone; }));
    CHECK(rig->poll_until([&] { return inbox.payloads.size() == sent + 1; }));
  }
  LONGS_EQUAL(0, rig->a.counters.broken.read());
}

TEST(VerbsDatagrams, AreForWhoIsConnected) {
  if (!start(16, false)) BP_SKIP(kNoVerbs);
  CHECK(send("early") == SendStatus::kAgain);
  CHECK(rig->connect());
  CHECK(send("one") == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return inbox.payloads.size() == 1; }));
  rig->restart_b();
  listen();
  CHECK(rig->poll_until([&] { return !VerbsProvider::is_connected(rig->a.to("b")); }));
  CHECK(send("late") == SendStatus::kAgain);
  CHECK(rig->connect());
  CHECK(send("two") == SendStatus::kDone);  // another instance has another key
  CHECK(rig->poll_until([&] { return inbox.payloads.size() == 2; }));
  STRCMP_EQUAL("two", inbox.payloads[1].c_str());
}

TEST(VerbsDatagrams, WhoTakesNoneIsSentNone) {
  if (!start(0)) BP_SKIP(kNoVerbs);
  CHECK(send("hello") == SendStatus::kRefused);
  LONGS_EQUAL(0, rig->a.verbs->datagram_bytes_max(rig->a.to("b")));
}

TEST(VerbsDatagrams, StrangersAreDroppedAndCounted) {
  if (!start()) BP_SKIP(kNoVerbs);
  // The stranger knows all about b's queue, which is more than it could know.
  const DatagramPeer b = static_cast<VerbsEndpoint&>(rig->a.to("b")).datagram_address();
  LoneQueue stranger(*rig);
  stranger.queue.set_peer(0, b);
  CHECK(stranger.queue.send(0, kData, view("I am a")) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return strange() == 1; }));
  DatagramPeer elsewhere = b;
  elsewhere.index = 999;
  stranger.queue.set_peer(0, elsewhere);
  CHECK(stranger.queue.send(0, kData, view("nobody's index")) == SendStatus::kDone);
  CHECK(rig->poll_until([&] { return strange() == 2; }));
  DatagramPeer keyless = b;
  keyless.key += 1;
  stranger.queue.set_peer(0, keyless);
  CHECK(stranger.queue.send(0, kData, view("the device drops it")) == SendStatus::kDone);
  CHECK(send("from a") == SendStatus::kDone);  // behind that datagram
  CHECK(rig->poll_until([&] { return inbox.payloads.size() == 1; }));
  STRCMP_EQUAL("from a", inbox.payloads[0].c_str());
  LONGS_EQUAL(2, strange());
  LONGS_EQUAL(0, rig->b.counters.datagrams.malformed.read());
}

TEST(VerbsDatagrams, WhatIsTooShortIsDroppedAndCounted) {
  if (!start()) BP_SKIP(kNoVerbs);
  const DatagramPeer b = static_cast<VerbsEndpoint&>(rig->a.to("b")).datagram_address();
  LoneQueue stranger(*rig);
  CHECK(stranger.send_raw(b, 7));
  CHECK(rig->poll_until([&] { return rig->b.counters.datagrams.malformed.read() == 1; }));
  LONGS_EQUAL(0, strange());
}

// With soft RoCE, a receive with a wrong key fails the queue pair. Other devices have faults of
// their own.
TEST(VerbsDatagrams, AQueuePairThatFailsComesBack) {
  if (!start()) BP_SKIP(kNoVerbs);
  DatagramCounters counters;
  LoneQueue failing(*rig, 0x1000, &counters), good(*rig);
  DatagramPeer there = static_cast<VerbsEndpoint&>(rig->a.to("b")).datagram_address();
  there.queue = failing.queue.number();
  there.key = LoneQueue::kKey;
  good.queue.set_peer(0, there);
  for (uint64_t times = 1; times <= 3; ++times) {
    CHECK(good.queue.send(0, kData, view("to nobody's memory")) == SendStatus::kDone);
    CHECK(rig->poll_until([&] {
      good.poll();
      CHECK(failing.poll() <= LoneQueue::kCount);  // a flushed receive is not posted again
      return counters.renewed.read() == times;
    }));
  }
  LONGS_EQUAL(0, counters.received.read());
}
