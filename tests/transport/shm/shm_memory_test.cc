// The heap is exhausted: messages of a new peer wait in its queue, a box is taken all the same, and
// nothing is lost. The tests run in processes of their own, whose heap lies in the pool.
#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "pinned_pool/pinned_pool.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Runs `body`, and refuses every allocation in it.
template <typename Body>
void without_memory(Body&& body) {
  static const HeapOwner pauper = [] {
    auto heap = process_pool().create_segment("heap", 64 * kMiB, PageSize::k4KiB, 1);
    BP_PROBE_CHECK(heap.ok() && add_heap_memory(heap.value()->memory()));
    retire_boot_heap();
    const HeapOwner owner = heap_owner("heap:pauper").take();
    limit_heap_owner(owner, 0);
    return owner;
  }();
  const HeapOwnerScope scope(pauper);
  BP_PROBE_CHECK(allocate(1) == nullptr);
  body();
}

void send(Member& from, uint32_t to, const char* text) {
  BP_PROBE_CHECK(from.to(to).am_send(1, bytes_of(text)) == SendStatus::kDone);
}

}  // namespace

TEST_GROUP(ShmMemory){};

// The peer's death waits, too: it is acknowledged only after the peer's messages were delivered.
void expect_to_wait(bool knows_another) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    GroupRig rig(shape_of(kind, 3));
    Member& a = rig.join(0);
    Member& b = rig.join(1);
    rig.join(2);
    b.messenger.poll(16);
    if (knows_another) b.to(2);
    send(a, 1, "first");
    send(a, 1, "second");
    StderrCapture log;
    without_memory([&] {
      for (int i = 0; i < 3; ++i) BP_PROBE_CHECK(b.messenger.poll(16) > 0);  // it must not sleep
    });
    BP_PROBE_CHECK(b.received.empty());
    BP_PROBE_CHECK(b.counters.memory_waits.read() == 3);
    const std::string said = log.text();
    const size_t at = said.find("receiving from member 0 (member): there is no memory");
    BP_PROBE_CHECK(at != std::string::npos);
    BP_PROBE_CHECK(said.find("receiving from member", at + 1) == std::string::npos);
    rig.kill(0);
    without_memory([&] {
      for (int i = 0; i < 3; ++i) BP_PROBE_CHECK(b.messenger.poll(16) > 0);
    });
    const auto acknowledged = [&] {
      return rig.segment().wrapper(1).acknowledged_epoch.load() == rig.members().epoch();
    };
    BP_PROBE_CHECK(!acknowledged());
    for (int i = 0; i < 3; ++i) b.messenger.poll(16);
    BP_PROBE_CHECK(acknowledged());
    BP_PROBE_CHECK(b.received.size() == 2 && b.received[1].payload == "second");
    BP_PROBE_CHECK(b.events.back().kind == PeerEventKind::kLeft);
    BP_PROBE_CHECK(b.messenger.poll(16) == 0);
  }
}
BP_PROBE(WhoIsHeardFirstOfAllWaitsForMemory) { expect_to_wait(false); }
BP_PROBE(WhoIsHeardFirstWaitsForMemory) { expect_to_wait(true); }

TEST(ShmMemory, WhoIsHeardFirstWaitsUntilThereIsSome) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(WhoIsHeardFirstOfAllWaitsForMemory);
  BP_CHECK_PROBE(WhoIsHeardFirstWaitsForMemory);
}

// The only peer of an exchange has its endpoint from the beginning.
BP_PROBE(WithoutMemoryOneConnectsToNobodyNew) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
    GroupRig rig(shape_of(kind, 2));
    Member& a = rig.join(0);
    rig.join(1);
    char answer[sizeof(Error::answer)] = "";
    without_memory([&] {
      auto endpoint = a.messenger.connect({1});
      if (!endpoint.ok()) std::snprintf(answer, sizeof answer, "%s", endpoint.error().answer);
    });
    const bool is_there = kind == GroupKind::kExchange;
    const std::string wanted = is_there ? "" : "shm: there is no memory for an endpoint";
    BP_PROBE_CHECK(wanted == answer);
    send(a, 1, "with memory");
  }
}

TEST(ShmMemory, IsAskedForByConnectToo) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(WithoutMemoryOneConnectsToNobodyNew);
}

BP_PROBE(ABoxTakesNoMemory) {
  const GroupShape shape = shape_of(GroupKind::kLazy, 2);
  GroupRig rig(shape);
  Member& a = rig.join(0);
  Member& b = rig.join(1);
  a.messenger.poll(16);  // records that b has joined
  auto& to_b = static_cast<ShmEndpoint&>(a.to(1));
  for (uint32_t i = 0; i < shape.send_threshold; ++i) {
    send(a, 1, "talk");
    b.messenger.poll(16);
  }
  BP_PROBE_CHECK(b.counters.boxes_granted.read() == 1);
  without_memory([&] {
    a.messenger.poll(16);
    BP_PROBE_CHECK(to_b.has_box());
    BP_PROBE_CHECK(to_b.am_send(1, {}) == SendStatus::kDone);
  });
  send(a, 1, "through it");
  b.messenger.poll(16);
  BP_PROBE_CHECK(b.received.back().payload == "through it");
}

TEST(ShmMemory, ABoxIsTakenWithoutAny) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ABoxTakesNoMemory);
}
