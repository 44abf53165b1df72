// Connections by the RDMA connection manager. The state machine is the same as over sockets
// (verbs_links, verbs_provider), so these tests check only the differences of this carrier.
#include "transport/verbs/connect/connection_manager.h"

#include <algorithm>

#include "alloc/heap_walk.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/verbs/verbs_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

HandshakeRecord a_hello() {
  HandshakeRecord hello = {};
  hello.kind = static_cast<uint16_t>(HandshakeKind::kHello);
  std::strcpy(hello.name, "storage-1");
  hello.instance = 0x1234'5678'9abc'def1;
  hello.known_instance = 0xfedc'ba98'7654'3211;
  hello.received = UINT64_MAX - 5;
  hello.queue_pair = 0x00ab'cdef;
  hello.packet_number = 0x00fe'dcba;
  std::memset(hello.gid, 7, sizeof hello.gid);
  hello.lid = 9;
  hello.mtu = 5;
  hello.reads_max = 16;
  hello.window = 64;
  hello.index = 3;
  hello.message_bytes = 4096;
  hello.flush_key = 0xffff'fff0;
  hello.flush_address = 0x7000'1234'5000;
  hello.datagram_queue = 0xff'ffff;
  finish_record(hello);
  return hello;
}

uint64_t heap_bytes_in_use() {
  const HeapWalk walk = walk_heap();
  uint64_t bytes = 0;
  for (size_t i = 0; i < walk.class_count; ++i) bytes += walk.classes[i].used_bytes;
  return bytes;
}

}  // namespace

TEST_GROUP(ConnectionManager) {
  std::unique_ptr<VerbsRig> rig;
  ReceivedTexts inbox;  // of b

  void teardown() override {
    rig.reset();
    rest_managed_device();
  }
  bool start(VerbsRigOptions options = {}) {
    if (!has_verbs_device() || !has_managed_device()) return false;
    options.by_manager = true;
    rig = std::make_unique<VerbsRig>(options);
    listen();
    return true;
  }
  void listen() { inbox.listen(*rig->b.messenger); }
  bool send(const std::string& text) {
    return rig->poll_until(
        [&] { return rig->a.to("b").am_send(kData, view(text)) == SendStatus::kDone; });
  }
};

TEST(ConnectionManager, AHelloThatWasShortenedIsWholeAgain) {
  const HandshakeRecord hello = a_hello();
  const CmHello brief = shorten(hello);
  CHECK_EQUAL(hash_of_name("storage-1"), brief.name_hash);
  HandshakeRecord again = {};  // the manager carries these
  again.queue_pair = hello.queue_pair;
  again.lid = hello.lid;
  std::memcpy(again.gid, hello.gid, sizeof again.gid);
  complete_record(again, brief, "storage-1", hello.known_instance);
  MEMCMP_EQUAL(&hello, &again, sizeof hello);
  CHECK(check_record(again, HandshakeKind::kHello) == Refusal::kNone);
}

TEST(ConnectionManager, WhatIsNoHelloIsNoneAfterwards) {
  HandshakeRecord record = {};
  complete_record(record, CmHello{}, "storage-1", 1);
  CHECK(check_record(record, HandshakeKind::kHello) == Refusal::kMalformed);
  CmHello brief = shorten(a_hello());
  brief.version = 9;
  complete_record(record, brief, "storage-1", 1);
  CHECK(check_record(record, HandshakeKind::kHello) == Refusal::kVersion);
  brief = shorten(a_hello());
  record = {};
  complete_record(record, brief, nullptr, 1);  // a name that no peer has
  CHECK(check_record(record, HandshakeKind::kHello) == Refusal::kNone);
  STRCMP_EQUAL("?", record.name);
  CHECK(record.known_instance != 1);
}

TEST(ConnectionManager, ConnectsAndSends) {
  if (!start()) BP_SKIP(kNoManager);
  CHECK(rig->connect());
  CHECK(send("hello"));
  CHECK(rig->poll_until([&] { return inbox.payloads.size() == 1; }));
  STRCMP_EQUAL("hello", inbox.payloads[0].c_str());
}

TEST(ConnectionManager, APeerThatGoesIsNoticedAndItsSuccessorIsReached) {
  if (!start()) BP_SKIP(kNoManager);
  CHECK(rig->connect());
  for (uint64_t i = 1; i <= 5; ++i) {
    rig->restart_b();
    listen();
    CHECK(rig->poll_until([&] { return rig->a.counters.broken.read() == i; }));
    CHECK(rig->connect());
    CHECK(send(std::to_string(i)));
    CHECK(rig->poll_until([&] { return inbox.payloads.size() == i; }));
  }
}

TEST(ConnectionManager, MessagesArriveOnceAndInOrderOverBreaks) {
  if (!has_verbs_device() || !has_managed_device()) BP_SKIP(kNoManager);
  std::vector<std::byte> target(4096);
  CHECK(start({.exported = target}));
  CHECK(rig->connect());
  RemoteMemory forged = rig->b.to("a").expose(target).take();
  forged.key += 0x1000;
  std::vector<Counted> breaks(10);
  size_t sent = 0, broken = 0;
  CHECK(rig->poll_until([&] {
    const std::string text = std::to_string(sent);
    if (sent < 1000 && rig->a.to("b").am_send(kData, view(text)) == SendStatus::kDone) {
      ++sent;
    }
    if (broken < breaks.size() && sent > broken * 90 &&
        rig->a.to("b").put(std::span(target).first(8), forged, &breaks[broken]) ==
            SendStatus::kPending) {
      ++broken;
    }
    return inbox.payloads.size() >= 1000;
  }));
  for (int i = 0; i < 100; ++i) rig->poll();
  LONGS_EQUAL(1000, inbox.payloads.size());
  for (size_t i = 0; i < 1000; ++i) CHECK(inbox.payloads[i] == std::to_string(i));
  for (size_t i = 0; i < broken; ++i) LONGS_EQUAL(1, breaks[i].count);
  CHECK(rig->a.counters.broken.read() >= 5);
}

TEST(ConnectionManager, WhoIsNotListedIsToldSo) {
  if (!start({.has_a = false})) BP_SKIP(kNoManager);
  // b's only peer is a. The stranger has another name, and the same address.
  StderrCapture log;
  VerbsRigOptions options;
  options.by_manager = true;
  options.has_b = false;
  options.address = rig->address();
  options.name_of_a = "stranger";
  {
    VerbsRig other(options);
    other.a.to("b");
    CHECK(rig->poll_until([&] { return rig->b.verbs->refused_count() > 0; }));
    CHECK(rig->poll_until([&] { return log.text().find(": it refuses: ") != std::string::npos; }));
  }
  const std::string text = log.finish();
  STRCMP_CONTAINS(
      "verbs: refusing a handshake with 10.77.0.1: its list of peers does not contain this name",
      text.c_str());
  STRCMP_CONTAINS(
      "it refuses: its list of peers does not contain this name; still trying; list this "
      "appliance there, by its name",
      text.c_str());
}

// A call returns its heap memory and the device's objects, and registers nothing.
TEST(ConnectionManager, WhatItTakesForACallItGivesBack) {
  BP_SKIP_UNDER_SANITIZER();
  if (!has_verbs_device() || !has_managed_device()) BP_SKIP(kNoManager);
  auto device = VerbsDevice::open({.device = kManagedDevice}).take();
  const SocketAddress address = parse_socket_address("tcp:10.77.0.1:18000").take();
  ConnectionManager here, there;
  CHECK(here.open(*device, nullptr).ok());
  CHECK(there.open(*device, &address).ok());
  using Kind = ConnectionManager::Event::Kind;
  const auto await = [](ConnectionManager& manager, Kind kind) {
    ConnectionManager::Event event;
    const uint64_t deadline_ns = monotonic_ns() + test::kPatienceNs;
    while (!manager.take_event(&event, 1, [](uint32_t) { return "storage-1"; })) {
      CHECK(monotonic_ns() < deadline_ns);
      usleep(50);
    }
    CHECK(event.kind == kind);
    return event;
  };
  uint32_t queue_pair = 1000;  // the kernel refuses one that it has seen a short time ago
  const auto say = [&](ConnectionManager& manager, rdma_cm_id* call, HandshakeKind kind) {
    HandshakeRecord record = a_hello();
    record.queue_pair = ++queue_pair;
    record.kind = static_cast<uint16_t>(kind);
    finish_record(record);
    CHECK(manager.send(call, record));
  };
  uint64_t most_bytes = 0;
  const auto make_a_call = [&] {
    rdma_cm_id* call = here.dial(address);
    CHECK(call != nullptr);
    await(here, Kind::kReached);
    say(here, call, HandshakeKind::kHello);
    const auto called = await(there, Kind::kCalled);
    say(there, called.call, HandshakeKind::kWelcome);
    await(here, Kind::kRecord);
    say(here, call, HandshakeKind::kReady);
    await(there, Kind::kRecord);
    most_bytes = std::max(most_bytes, heap_bytes_in_use());
    here.close(call);
    await(there, Kind::kHungUp);
    there.close(called.call);
  };
  make_a_call();
  const uint64_t bytes = heap_bytes_in_use();
  const auto kernel_counts = [] {
    std::vector<uint64_t> counts;
    for (const char* kind : {"mr", "pd", "cq", "qp"}) {
      for (uint32_t i = 0; i < 2; ++i) counts.push_back(kernel_resource_count(kind, i));
    }
    return counts;
  };
  const std::vector<uint64_t> counts = kernel_counts();
  const uint64_t with_counts = heap_bytes_in_use() - bytes;
  most_bytes = 0;
  for (int i = 0; i < 200; ++i) make_a_call();
  LONGS_EQUAL(bytes + with_counts, heap_bytes_in_use());
  CHECK(kernel_counts() == counts);
  std::printf("\nrdma_cm: the two ends of a call take %llu bytes of the heap\n",
              static_cast<unsigned long long>(most_bytes - bytes - with_counts));
  CHECK(most_bytes - bytes - with_counts <= 8 * kKiB);
}

TEST(ConnectionManager, ListensAtIpAddressesOnly) {
  if (!has_verbs_device() || !has_managed_device()) BP_SKIP(kNoManager);
  auto device = VerbsDevice::open({.device = kManagedDevice}).take();
  const SocketAddress address = parse_socket_address("unix:/tmp/manager").take();
  ConnectionManager manager;
  const auto refused = manager.open(*device, &address);
  CHECK_FALSE(refused.ok());
  STRCMP_EQUAL("listening at unix:/tmp/manager", refused.error().doing);
  STRCMP_EQUAL("set a tcp: address, or connect = \"socket\"", refused.error().cure);
  const SocketAddress elsewhere = parse_socket_address("tcp:192.0.2.1:7471").take();
  ConnectionManager second;
  CHECK_FALSE(second.open(*device, &elsewhere).ok());
}
