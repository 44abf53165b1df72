// Puts, gets and atomics: done directly or by the target, and their ends when the target dies.
#include "transport/shm/endpoint/shm_provider.h"

#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "tests/support/pool_fixture.h"
#include "tests/support/seed.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

std::vector<std::byte> pattern(size_t bytes, uint64_t number) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i * 13 + i / 251 + number);
  return made;
}

}  // namespace

TEST_GROUP(ShmOperations) {
  TestPool pool;
  std::span<std::byte> in_pool;
  std::unique_ptr<GroupRig> rig;
  Member* a = nullptr;                       // starts the operations
  Member* b = nullptr;                       // the target
  alignas(8) std::byte outside[32768] = {};  // of b, outside the pool
  std::deque<std::vector<std::byte>> kept;   // memory stays until an operation has ended

  const std::vector<std::byte>& keep(size_t bytes, uint64_t number) {
    return kept.emplace_back(pattern(bytes, number));
  }

  void setup() override { in_pool = pool.memory(64 * kKiB); }
  void start(GroupKind kind, uint32_t eager_bytes = 4096, uint32_t eager_count = 4) {
    start(kind, SegmentRights::all(), eager_bytes, eager_count);
  }
  void start(GroupKind kind, const SegmentRights& rights_of_b, uint32_t eager_bytes = 4096,
             uint32_t eager_count = 4) {
    GroupShape shape = shape_of(kind, 3);
    shape.box_count = 0;
    shape.eager_bytes = eager_bytes;
    shape.eager_count = eager_count;
    shape.entry_count = 8;
    rig = std::make_unique<GroupRig>(shape, &*pool);
    a = &rig->join(0);
    b = &rig->join(1, false, rights_of_b);
  }
  RemoteMemory expose(std::span<std::byte> memory) {
    auto exposed = b->to(0).expose(memory);
    CHECK(exposed.ok());
    return exposed.value();
  }
  void poll() {
    b->messenger.poll(64);
    a->messenger.poll(64);
  }
  Outcome finish(const Counted& done) {
    for (int i = 0; i < 1000 && done.count == 0; ++i) poll();
    LONGS_EQUAL(1, done.count);
    return done.outcome;
  }
};

TEST(ShmOperations, AreDoneOnTheSpotInThePool) {
  for (GroupKind kind : kGroupKinds) {
    start(kind);
    const RemoteMemory remote = expose(in_pool.first(20000));
    const std::vector<std::byte> data = pattern(20000, 1);
    CHECK(a->to(1).put(data, remote, nullptr) == SendStatus::kDone);
    MEMCMP_EQUAL(data.data(), in_pool.data(), data.size());
    std::vector<std::byte> got(500);
    CHECK(a->to(1).get(got, remote.part(100, 500), nullptr) == SendStatus::kDone);
    MEMCMP_EQUAL(data.data() + 100, got.data(), 500);
    std::memset(in_pool.data(), 0, 16);
    uint64_t before = 99;
    CHECK(a->to(1).fetch_add(remote.part(8, 8), 5, &before, nullptr) == SendStatus::kDone);
    LONGS_EQUAL(0, before);
    CHECK(a->to(1).compare_swap(remote.part(8, 8), 5, 9, &before, nullptr) == SendStatus::kDone);
    LONGS_EQUAL(5, before);
    CHECK(a->to(1).compare_swap(remote.part(8, 8), 5, 1, &before, nullptr) == SendStatus::kDone);
    LONGS_EQUAL(9, before);
    CHECK(a->to(1).flush(nullptr) == SendStatus::kDone);
  }
}

// A member reaches the pool's memory with the rights of its target, and with no more.
TEST(ShmOperations, HaveTheRightsOfTheTargetOnly) {
  Segment& segment = pool->segment(0);
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
    for (int rights_of_b = 0; rights_of_b < 3; ++rights_of_b) {  // none, read, write
      SegmentRights rights;
      if (rights_of_b > 0) rights.add(segment.number, rights_of_b == 2);
      start(kind, rights);
      std::memset(in_pool.data(), 0, 64);
      // Forged: b has exposed nothing.
      const RemoteMemory named = {reinterpret_cast<uintptr_t>(in_pool.data()), 64, 0,
                                  pack_exposure(true, 7, 1)};
      uint64_t word = 77, before = 0;
      Counted done[3];
      const auto bytes = std::as_writable_bytes(std::span(&word, 1));
      const SendStatus got = a->to(1).get(bytes, named.part(0, 8), &done[0]);
      const SendStatus put = a->to(1).put(bytes, named.part(8, 8), &done[1]);
      const SendStatus added = a->to(1).fetch_add(named.part(16, 8), 1, &before, &done[2]);
      const SendStatus asked =
          kind == GroupKind::kExchange ? SendStatus::kRefused : SendStatus::kPending;
      CHECK(got == (rights_of_b > 0 ? SendStatus::kDone : asked));
      CHECK(put == (rights_of_b == 2 ? SendStatus::kDone : asked));
      CHECK(added == (rights_of_b == 2 ? SendStatus::kDone : asked));
      if (got == SendStatus::kPending) CHECK(finish(done[0]) == Outcome::kNotDone);
      if (put == SendStatus::kPending) CHECK(finish(done[1]) == Outcome::kNotDone);
      if (added == SendStatus::kPending) CHECK(finish(done[2]) == Outcome::kNotDone);
      LONGS_EQUAL(rights_of_b > 0 ? 0 : 77, word);
      LONGS_EQUAL(rights_of_b == 2 ? 1 : 0, static_cast<int>(in_pool[16]));
    }
  }
}

TEST(ShmOperations, MemoryThatOneMayNotWriteIsNotExposed) {
  start(GroupKind::kLazy);
  pool->segment(0).is_writable = false;
  auto exposed = b->to(0).expose(in_pool.first(8));
  CHECK_FALSE(exposed.ok());
  STRCMP_EQUAL("memory is mapped read-only here", exposed.error().answer);
}

TEST(ShmOperations, AreDoneByTheTargetElsewhereInAsManyPiecesAsItTakes) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    for (uint32_t eager_count : {1u, 4u}) {
      start(kind, 256, eager_count);
      const RemoteMemory remote = expose(outside);
      for (size_t bytes : {0u, 1u, 56u, 64u, 256u, 257u, 5000u}) {
        Counted put, get;
        const std::vector<std::byte> data = pattern(bytes, bytes);
        CHECK(a->to(1).put(data, remote.part(100, bytes), &put) == SendStatus::kPending);
        CHECK(finish(put) == Outcome::kDone);
        MEMCMP_EQUAL(data.data(), outside + 100, bytes);
        std::vector<std::byte> got(bytes);
        CHECK(a->to(1).get(got, remote.part(100, bytes), &get) == SendStatus::kPending);
        CHECK(finish(get) == Outcome::kDone);
        MEMCMP_EQUAL(data.data(), got.data(), bytes);
      }
    }
  }
}

TEST(ShmOperations, AtomicsByTheTargetTellTheValueBefore) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    start(kind);
    const RemoteMemory remote = expose(outside);
    std::memset(outside, 0, 8);
    uint64_t before = 99;
    Counted add, swap, miss;
    CHECK(a->to(1).fetch_add(remote.part(0, 8), 7, &before, &add) == SendStatus::kPending);
    CHECK(finish(add) == Outcome::kDone);
    LONGS_EQUAL(0, before);
    CHECK(a->to(1).compare_swap(remote.part(0, 8), 7, 8, &before, &swap) == SendStatus::kPending);
    CHECK(finish(swap) == Outcome::kDone);
    LONGS_EQUAL(7, before);
    CHECK(a->to(1).compare_swap(remote.part(0, 8), 7, 9, &before, &miss) == SendStatus::kPending);
    CHECK(finish(miss) == Outcome::kDone);
    LONGS_EQUAL(8, before);
  }
}

TEST(ShmOperations, RefusesWhatIsTooLongOrAskew) {
  start(GroupKind::kLazy);
  const RemoteMemory remote = expose(outside).part(0, 100);
  CHECK(a->to(1).put(keep(101, 0), remote, nullptr) == SendStatus::kTooLong);
  CHECK(a->to(1).fetch_add(remote.part(0, 4), 1, nullptr, nullptr) == SendStatus::kTooLong);
  CHECK(a->to(1).fetch_add(remote.part(4, 8), 1, nullptr, nullptr) == SendStatus::kRefused);
}

TEST(ShmOperations, AreRefusedByTheTargetOutsideWhatIsExposed) {
  start(GroupKind::kLazy);
  Member& c = rig->join(2);
  const RemoteMemory remote = expose(std::span(outside).subspan(1000, 1000));
  auto for_c = b->to(2).expose(outside);
  CHECK(for_c.ok());
  const auto put_to = [&](RemoteMemory where, uint64_t bytes) {
    Counted done;
    where.bytes = bytes;
    CHECK(a->to(1).put(keep(bytes, 3), where, &done) == SendStatus::kPending);
    return finish(done);
  };
  std::memset(outside, 0, sizeof outside);
  CHECK(put_to(remote.part(1, 0), 1000) == Outcome::kNotDone);
  CHECK(put_to({remote.address - 1, 0, remote.key, remote.kind}, 10) == Outcome::kNotDone);
  CHECK(put_to({remote.address, 0, remote.key, remote.kind + (uint64_t{1} << 32)}, 10) ==
        Outcome::kNotDone);
  CHECK(put_to({remote.address, 0, remote.key, pack_exposure(false, 9999, 1)}, 10) ==
        Outcome::kNotDone);
  CHECK(put_to(for_c.value(), 10) == Outcome::kNotDone);  // exposed for another member
  for (std::byte byte : outside) CHECK(byte == std::byte{0});
  CHECK(put_to(remote, 1000) == Outcome::kDone);
  b->to(0).withdraw(remote);
  CHECK(put_to(remote, 10) == Outcome::kNotDone);
  const RemoteMemory again = expose(std::span(outside).subspan(1000, 1000));  // the same memory
  CHECK(put_to(remote, 10) == Outcome::kNotDone);
  CHECK(put_to(again, 10) == Outcome::kDone);
  LONGS_EQUAL(0, b->counters.cut_off.read());
  (void)c;
}

TEST(ShmOperations, ExposesSoMuchAndNoMore) {
  start(GroupKind::kLazy);
  for (uint32_t i = 0; i < kExposureCountMax; ++i) expose(std::span(outside).first(8));
  auto one_more = b->to(0).expose(outside);
  CHECK_FALSE(one_more.ok());
  STRCMP_CONTAINS("32 pieces", one_more.error().answer);
}

TEST(ShmOperations, AnExchangeRefusesWhatTheTargetWouldHaveToDo) {
  start(GroupKind::kExchange);
  const RemoteMemory remote = expose(outside);
  CHECK(a->to(1).put(keep(8, 0), remote.part(0, 8), nullptr) == SendStatus::kRefused);
  CHECK(a->to(1).fetch_add(remote.part(0, 8), 1, nullptr, nullptr) == SendStatus::kRefused);
}

TEST(ShmOperations, NoRoomSaysAgainAndEveryOneThatBeganEnds) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    start(kind);
    const RemoteMemory remote = expose(outside);
    std::memset(outside, 0, 8);
    Counted done[100];
    int begun = 0;
    while (a->to(1).fetch_add(remote.part(0, 8), 1, nullptr, &done[begun]) ==
           SendStatus::kPending) {
      CHECK(++begun < 100);
    }
    CHECK(begun >= 4);
    for (int i = 0; i < 10; ++i) poll();
    for (int i = 0; i < begun; ++i) LONGS_EQUAL(1, done[i].count);
    uint64_t sum = 0;
    std::memcpy(&sum, outside, 8);
    LONGS_EQUAL(begun, sum);
    LONGS_EQUAL(0, a->messenger.poll(8));  // no operation counts as under way
  }
}

TEST(ShmOperations, FlushEndsAfterWhatWasStartedBefore) {
  start(GroupKind::kLazy);
  const RemoteMemory remote = expose(outside);
  Counted put, flush, late;
  CHECK(a->to(1).put(keep(20000, 1), remote.part(0, 20000), &put) == SendStatus::kPending);
  CHECK(a->to(1).flush(&flush) == SendStatus::kPending);
  while (put.count == 0) {
    LONGS_EQUAL(0, flush.count);
    poll();
  }
  CHECK(finish(flush) == Outcome::kDone);
  CHECK(a->to(1).flush(&late) == SendStatus::kDone);
  LONGS_EQUAL(0, late.count);
}

// The answer to a piece wakes a sleeping shard for one poll only, so that poll must send the next
// piece.
TEST(ShmOperations, EachAnswerIsFollowedByTheNextPieceInTheSamePoll) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    start(kind, 256, 8);
    const RemoteMemory remote = expose(outside);
    Counted put;
    CHECK(a->to(1).put(keep(2560, 1), remote.part(0, 2560), &put) == SendStatus::kPending);
    for (int piece = 0; piece < 10; ++piece) {
      LONGS_EQUAL(0, put.count);
      CHECK(b->messenger.poll(64) > 0);
      a->messenger.poll(64);
    }
    LONGS_EQUAL(1, put.count);
  }
}

TEST(ShmOperations, WhoeverWaitsForRoomDoesNotSleep) {
  start(GroupKind::kLazy, 256, 8);
  Member& c = rig->join(2);
  const RemoteMemory remote = expose(outside);
  Counted put;
  CHECK(a->to(1).put(keep(2560, 1), remote.part(0, 2560), &put) == SendStatus::kPending);
  b->messenger.poll(64);  // the first piece is done
  while (c.to(1).am_send(1, bytes_of("in the way")) == SendStatus::kDone) {
  }
  CHECK(a->messenger.poll(64) > 0);
  CHECK(a->messenger.poll(64) > 0);
  CHECK(finish(put) == Outcome::kDone);
}

TEST(ShmOperations, EndUnknownWhenTheTargetDies) {
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    start(kind);
    const RemoteMemory remote = expose(outside);
    Counted put, flush;
    CHECK(a->to(1).put(keep(20000, 1), remote.part(0, 20000), &put) == SendStatus::kPending);
    CHECK(a->to(1).flush(&flush) == SendStatus::kPending);
    b->messenger.poll(64);
    rig->kill(1);
    for (int i = 0; i < 3; ++i) a->messenger.poll(64);
    LONGS_EQUAL(1, put.count);
    CHECK(put.outcome == Outcome::kUnknown);
    LONGS_EQUAL(1, flush.count);
    CHECK(flush.outcome == Outcome::kUnknown);
    LONGS_EQUAL(0, a->messenger.poll(8));
  }
}

TEST(ShmOperations, AnExposureIsNotForWhoComesNext) {
  start(GroupKind::kLazy);
  const RemoteMemory remote = expose(std::span(outside).first(64));
  rig->bury(0);
  a = &rig->join(0);
  Counted put;
  CHECK(a->to(1).put(keep(8, 0), remote.part(0, 8), &put) == SendStatus::kPending);
  CHECK(finish(put) == Outcome::kNotDone);
}

TEST(ShmOperations, ChanceAgainstAShadow) {
  Seed seed;
  std::mt19937_64 random(seed.value());
  for (GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    start(kind, 512, 4);
    for (const std::span<std::byte> target : {std::span<std::byte>(outside), in_pool}) {
      const RemoteMemory remote = expose(target.first(4096));
      std::memset(target.data(), 0, 4096);
      std::vector<std::byte> shadow(4096);
      for (int i = 0; i < 3000; ++i) {
        const uint64_t offset = random() % 4096;
        const uint64_t bytes = random() % (4096 - offset + 1) % (random() % 2 == 0 ? 64 : 4097);
        Counted done;
        SendStatus status;
        std::vector<std::byte> memory = pattern(bytes, static_cast<uint64_t>(i));
        uint64_t before = 0;
        const uint64_t word = offset / 8 * 8;
        const auto what = random() % 3;
        if (what == 0) status = a->to(1).put(memory, remote.part(offset, bytes), &done);
        else if (what == 1) status = a->to(1).get(memory, remote.part(offset, bytes), &done);
        else status = a->to(1).fetch_add(remote.part(word, 8), 1000003, &before, &done);
        if (status == SendStatus::kPending) CHECK_TEXT(finish(done) == Outcome::kDone, seed.text());
        else CHECK_TEXT(status == SendStatus::kDone, seed.text());
        uint64_t value = 0;
        std::memcpy(&value, shadow.data() + word, 8);
        if (what == 0) std::copy(memory.begin(), memory.end(), shadow.data() + offset);
        if (what == 1) {
          CHECK_TEXT(std::equal(memory.begin(), memory.end(), shadow.data() + offset), seed.text());
        }
        if (what == 2) {
          CHECK_TEXT(before == value, seed.text());
          value += 1000003;
          std::memcpy(shadow.data() + word, &value, 8);
        }
      }
      CHECK_TEXT(std::memcmp(shadow.data(), target.data(), 4096) == 0, seed.text());
    }
  }
}
