// Datagrams: small, to whoever is connected, without a promise; who is no peer is dropped and
// counted.
#include "transport/verbs/datagram_queue_datapath.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/support/skip.h"
#include "tests/transport/verbs_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(VerbsDatagrams) {
  std::unique_ptr<VerbsRig> rig;
  Inbox inbox;  // of b

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
  uint64_t dropped() { return rig->b.verbs->datagram_counters().dropped.read(); }
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
  LONGS_EQUAL(3, rig->a.verbs->datagram_counters().sent.read());
  LONGS_EQUAL(3, rig->b.verbs->datagram_counters().received.read());
  LONGS_EQUAL(0, dropped());
}

TEST(VerbsDatagrams, ManyArriveWhereThereIsRoomAndTheRestIsLost) {
  if (!start()) BP_SKIP(kNoVerbs);
  // b does not poll: what it has no buffer for is nobody's fault.
  uint32_t sent = 0;
  const uint64_t deadline_ns = monotonic_ns() + 10 * kNsPerSecond;
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
  // And polled, all of them come, the connection's messages beside them.
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
  // It knows all that can be known of b's queue, which is more than it could.
  const DatagramPeer b = rig->a.verbs->datagram_peer(rig->a.to("b"));
  const auto bytes = DatagramQueue::memory_bytes(16);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
  {
    const uint32_t key = VerbsDevice::local_key(rig->keys().key(memory, bytes).key);
    ibv_cq* completions = ibv_create_cq(rig->device().context(), 64, nullptr, nullptr, 0);
    DatagramQueue stranger;
    CHECK(stranger.create({.device = &rig->device(), .completions = completions,
                           .memory = {memory, bytes}, .memory_key = key, .count = 16,
                           .peer_count_max = 1, .key = 7}).ok());
    const uint64_t before = dropped();
    stranger.set_peer(0, b);
    CHECK(stranger.send(0, kData, view("I am a")) == SendStatus::kDone);
    CHECK(rig->poll_until([&] { return dropped() == before + 1; }));
    DatagramPeer elsewhere = b;
    elsewhere.place = 999;
    stranger.set_peer(0, elsewhere);
    CHECK(stranger.send(0, kData, view("nobody's place")) == SendStatus::kDone);
    CHECK(rig->poll_until([&] { return dropped() == before + 2; }));
    DatagramPeer keyless = b;
    keyless.key += 1;
    stranger.set_peer(0, keyless);
    CHECK(stranger.send(0, kData, view("the device drops it")) == SendStatus::kDone);
    CHECK(send("from a") == SendStatus::kDone);  // behind it
    CHECK(rig->poll_until([&] { return inbox.payloads.size() == 1; }));
    STRCMP_EQUAL("from a", inbox.payloads[0].c_str());
    LONGS_EQUAL(before + 2, dropped());
    // The stranger's queue goes before what it completes to.
    stranger.destroy();
    ibv_destroy_cq(completions);
  }
  std::free(memory);
}
