// Single copy between members: a peer's private memory is opened with its endpoint, and a failure
// to open it is logged once. A stand-in for the mechanism copies within this process.
#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/pool_fixture.h"
#include "tests/support/stderr_capture.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

int written_count = 0;

class LocalAccess final : public PeerAccess {
 public:
  CopyOutcome read(std::byte* local, const ExposedRange& range, uint64_t offset,
                   uint64_t bytes) noexcept override {
    std::memcpy(local, pointer_to(range.address + offset), bytes);
    return {CopyEnd::kDone, bytes};
  }
  CopyOutcome write(const std::byte* local, const ExposedRange& range, uint64_t offset,
                    uint64_t bytes) noexcept override {
    ++written_count;
    std::memcpy(pointer_to(range.address + offset), local, bytes);
    return {CopyEnd::kDone, bytes};
  }
};

class LocalCopy final : public SingleCopy {
 public:
  SingleCopyKind kind() const noexcept override { return SingleCopyKind::kCma; }
  Result<ExposedRange> expose(void* memory, uint64_t bytes, bool is_writable) noexcept override {
    ++exposed_count;
    return ExposedRange{reinterpret_cast<uintptr_t>(memory), bytes, 0, is_writable};
  }
  void withdraw(const ExposedRange&) noexcept override { --exposed_count; }

  int opened_count = 0;
  int exposed_count = 0;
  bool is_refused = false;

 protected:
  Result<PeerAccess*> make_access(const SingleCopyPeer& peer, uint64_t,
                                  std::byte* storage) noexcept override {
    ++opened_count;
    if (!is_refused)
      return static_cast<PeerAccess*>(std::construct_at(reinterpret_cast<LocalAccess*>(storage)));
    Error error;
    error.set_doing("copying from process %d", peer.pid);
    error.set_answer("this test lets nobody");
    return error.set_cure("none");
  }
  void explain(const SingleCopyPeer&, int, Error&) const noexcept override {}
};

}  // namespace

TEST_GROUP(ShmSingleCopy) {
  TestPool pool;
  LocalCopy mechanism;
  std::unique_ptr<GroupRig> rig;
  Member* a = nullptr;                   // starts the operations
  Member* b = nullptr;                   // the target
  alignas(8) std::byte target[64] = {};  // outside the pool

  void make_rig() {
    rig = std::make_unique<GroupRig>(shape_of(GroupKind::kLazy, 3), &*pool);
    rig->pid = static_cast<uint32_t>(getpid());  // a process that can be watched
  }
  void start() {
    make_rig();
    b = &rig->join(1);
    rig->single_copy = &mechanism;
    a = &rig->join(0);
    rig->segment().card(1) = mechanism.card().value();
    rig->poll();
  }
  RemoteMemory exposed() {
    auto remote = b->to(0).expose(target);
    CHECK(remote.ok());
    return remote.value();
  }
};

TEST(ShmSingleCopy, TheMemoryIsOpenedWithTheEndpointAndNotByAPut) {
  start();
  LONGS_EQUAL(0, mechanism.opened_count);
  Endpoint& to_b = a->to(1);
  LONGS_EQUAL(1, mechanism.opened_count);
  const RemoteMemory remote = exposed();
  const std::string text = "straight there";
  CHECK(to_b.put(bytes_of(text), remote, nullptr) == SendStatus::kDone);
  MEMCMP_EQUAL(text.data(), target, text.size());
  char back[5] = {};
  CHECK(to_b.get(std::as_writable_bytes(std::span(back, 4)), remote, nullptr) == SendStatus::kDone);
  STRCMP_EQUAL("stra", back);
  a->to(1);
  LONGS_EQUAL(1, mechanism.opened_count);
}

TEST(ShmSingleCopy, SoItIsWhereThePeerIsHeardFirst) {
  start();
  CHECK(b->to(0).am_send(1, bytes_of("here I am")) == SendStatus::kDone);
  a->messenger.poll(8);
  LONGS_EQUAL(1, mechanism.opened_count);
  LONGS_EQUAL(1, a->received.size());
}

TEST(ShmSingleCopy, WhoeverComesNextIsOpenedAnew) {
  start();
  a->to(1);
  rig->bury(1);
  rig->single_copy = nullptr;
  b = &rig->join(1);
  rig->segment().card(1) = mechanism.card().value();
  rig->poll();
  const RemoteMemory remote = exposed();
  Endpoint& to_b = a->to(1);
  LONGS_EQUAL(2, mechanism.opened_count);
  CHECK(to_b.put(bytes_of("anew"), remote, nullptr) == SendStatus::kDone);
}

TEST(ShmSingleCopy, WhatCannotBeOpenedIsSaidOnceAtThePollsEndAndTheTargetCopies) {
  mechanism.is_refused = true;
  start();
  rig->join(2);
  StderrCapture log;
  Endpoint& to_b = a->to(1);
  a->to(2);
  LONGS_EQUAL(2, mechanism.opened_count);
  Counted done;
  const std::string text = "by the target";
  CHECK(to_b.put(bytes_of(text), exposed(), &done) == SendStatus::kPending);
  STRCMP_EQUAL("", log.text().c_str());
  rig->poll();
  const std::string said = log.finish();
  STRCMP_CONTAINS("this test lets nobody", said.c_str());
  STRCMP_CONTAINS("copied through the pool instead", said.c_str());
  CHECK(said.find("lets nobody") == said.rfind("lets nobody"));
  LONGS_EQUAL(1, done.count);
  MEMCMP_EQUAL(text.data(), target, text.size());
}

// Without a watch, nothing would report that the process has ended and its id belongs to another
// process.
TEST(ShmSingleCopy, AProcessThatCannotBeWatchedIsNotCopiedFrom) {
  start();
  rig->pid = INT_MAX;  // above all process ids
  rig->join(2);
  StderrCapture log;
  a->to(2);
  rig->poll();
  const std::string said = log.finish();
  STRCMP_CONTAINS("opening the process 2147483647 of member 2, to see when it ends: No such "
                  "process",
                  said.c_str());
  STRCMP_CONTAINS("copied through the pool instead", said.c_str());
  LONGS_EQUAL(0, mechanism.opened_count);
}

// Most of the pool is like this: the owner of a heap may write it, and other members may only read
// it.
TEST(ShmSingleCopy, PutsWhereTheSenderMayOnlyReadThePoolAreDoneAtOnce) {
  const std::span<std::byte> block = pool.memory(4 * kMiB);
  SegmentRights to_read;
  to_read.add(pool->segment(0).number, false);
  make_rig();
  rig->single_copy = &mechanism;
  b = &rig->join(1);
  a = &rig->join(0, false, to_read);
  rig->segment().card(1) = mechanism.card().value();
  rig->poll();
  Endpoint& to_b = a->to(1);
  const int cards_count = mechanism.exposed_count;
  auto remote = b->to(0).expose(block);
  CHECK(remote.ok());
  LONGS_EQUAL(cards_count + 1, mechanism.exposed_count);
  pool->segment(0).is_writable = false;  // as a has it mapped; b does not poll
  const std::vector<std::byte> data(block.size(), std::byte{0x5a});
  written_count = 0;
  CHECK(to_b.put(data, remote.value(), nullptr) == SendStatus::kDone);
  LONGS_EQUAL(1, written_count);
  MEMCMP_EQUAL(data.data(), block.data(), data.size());
  b->to(0).withdraw(remote.value());
  LONGS_EQUAL(cards_count, mechanism.exposed_count);
}

TEST(ShmSingleCopy, WhatAPeerMayWriteItselfTakesNone) {
  make_rig();
  rig->single_copy = &mechanism;
  b = &rig->join(1);
  a = &rig->join(0);
  rig->poll();
  Endpoint& to_a = b->to(0);
  const int cards_count = mechanism.exposed_count;
  auto remote = to_a.expose(pool.memory(4096));
  CHECK(remote.ok());
  LONGS_EQUAL(cards_count, mechanism.exposed_count);
  to_a.withdraw(remote.value());
  LONGS_EQUAL(cards_count, mechanism.exposed_count);
}
