// The lane between shards: in one thread against a model, and between two threads.
#include "transport/loop/spsc_fifo_datapath.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "platform/clock.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

using Fifo = SpscFifo<uint64_t>;

}  // namespace

TEST_GROUP(SpscFifo) {
  static constexpr uint64_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0xa5};

  Fifo* fifo = nullptr;
  std::byte* memory = nullptr;
  uint64_t bytes = 0;

  void make(uint64_t capacity) {
    free_memory();
    bytes = Fifo::bytes_for(capacity);
    memory = static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes + kGuardBytes));
    std::fill_n(memory + bytes, kGuardBytes, kGuard);
    fifo = Fifo::create({memory, bytes}, capacity);
  }

  void free_memory() {
    if (memory == nullptr) return;
    for (uint64_t i = 0; i < kGuardBytes; ++i) CHECK(memory[bytes + i] == kGuard);
    std::free(memory);
    memory = nullptr;
  }

  void teardown() override { free_memory(); }

  std::vector<uint64_t> pop(size_t count) {
    std::vector<uint64_t> out(count, ~uint64_t{0});
    out.resize(fifo->pop_batch(out));
    return out;
  }
};

TEST(SpscFifo, GivesBackWhatWasPushedInOrder) {
  make(8);
  LONGS_EQUAL(8, fifo->capacity());
  for (uint64_t i = 1; i <= 3; ++i) CHECK(fifo->try_push(i));
  CHECK((pop(8) == std::vector<uint64_t>{1, 2, 3}));
}

TEST(SpscFifo, PopTakesAtMostWhatWasAskedFor) {
  make(8);
  for (uint64_t i = 0; i < 5; ++i) CHECK(fifo->try_push(i));
  CHECK((pop(2) == std::vector<uint64_t>{0, 1}));
  CHECK(pop(0).empty());
  CHECK((pop(9) == std::vector<uint64_t>{2, 3, 4}));
}

TEST(SpscFifo, WrapsAtEveryPosition) {
  make(4);
  uint64_t next_in = 0;
  uint64_t next_out = 0;
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 3; ++i) CHECK(fifo->try_push(next_in++));
    for (const uint64_t item : pop(3)) {
      CHECK_EQUAL(next_out, item);
      ++next_out;
    }
    CHECK_EQUAL(next_in, next_out);
  }
}

TEST(SpscFifo, OfOneItemWorks) {
  make(1);
  for (uint64_t i = 0; i < 5; ++i) {
    CHECK(fifo->try_push(i));
    CHECK(!fifo->try_push(99));
    CHECK((pop(4) == std::vector<uint64_t>{i}));
  }
}

TEST(SpscFifo, PushOnFullSaysNoAndChangesNothing) {
  make(4);
  for (uint64_t i = 0; i < 4; ++i) CHECK(fifo->try_push(i));
  CHECK(!fifo->try_push(4));
  CHECK(!fifo->try_push(4));
  CHECK((pop(1) == std::vector<uint64_t>{0}));
  CHECK(fifo->try_push(4));
  CHECK(!fifo->try_push(5));
  // Two pops, because an end that knows of more items does not read the other end's index.
  CHECK((pop(9) == std::vector<uint64_t>{1, 2, 3}));
  CHECK((pop(9) == std::vector<uint64_t>{4}));
}

TEST(SpscFifo, PopOnEmptyGivesNothing) {
  make(4);
  CHECK(pop(4).empty());
  CHECK(fifo->try_push(1));
  pop(4);
  CHECK(pop(4).empty());
}

TEST(SpscFifo, CreateInsistsOnItsRequirements) {
  make(4);
  BP_CHECK_DIES("is_power_of_two", Fifo::create({memory, bytes}, 3));
  BP_CHECK_DIES("bytes_for", Fifo::create({memory, bytes}, 16));
  BP_CHECK_DIES("kCacheLineBytes", Fifo::create({memory + 8, bytes}, 4));
}

TEST(SpscFifo, IsLikeAQueueForAnySequence) {
  const test::Seed seed;
  std::mt19937_64 random(seed.value());
  for (const uint64_t capacity : {1, 2, 16, 64}) {
    make(capacity);
    std::deque<uint64_t> model;
    uint64_t next = 0;
    bool same = true;
    for (int step = 0; step < 20'000 && same; ++step) {
      if (random() % 2 == 0) {
        for (uint64_t i = random() % (capacity + 2); i-- > 0;) {
          const bool pushed = fifo->try_push(next);
          same &= pushed == (model.size() < capacity);
          if (pushed) model.push_back(next);
          ++next;
        }
      } else {
        const size_t wanted = random() % (capacity + 2);
        const std::vector<uint64_t> got = pop(wanted);
        // pop() may return fewer items than there are, but returns none only if there are none.
        same &= got.size() <= std::min(wanted, model.size());
        same &= !got.empty() || wanted == 0 || model.empty();
        for (const uint64_t item : got) {
          same &= !model.empty() && model.front() == item;
          if (!model.empty()) model.pop_front();
        }
      }
    }
    CHECK_TEXT(same, seed.text());
  }
}

TEST_GROUP(LaneEnd) {
  static constexpr uint64_t kFew = 4;
  std::atomic<uint64_t> other{0};
  LaneEnd end;

  void find(uint64_t count) {
    other += count;
    CHECK_EQUAL(other.load(), end.look(other, kFew));
    CHECK_EQUAL(other.load(), end.seen());
  }
};

TEST(LaneEnd, WaitsOnceItFoundAFewTwiceInARow) {
  find(1);
  CHECK_FALSE(end.waits());
  find(kFew - 1);
  CHECK_TRUE(end.waits());
  find(1);
  CHECK_TRUE(end.waits());
}

TEST(LaneEnd, WaitsNotOnceItFoundNothingOrMuch) {
  for (const uint64_t count : {uint64_t{0}, kFew}) {
    find(1);
    find(1);
    CHECK_TRUE(end.waits());
    find(count);
    CHECK_FALSE(end.waits());
    find(1);
    CHECK_FALSE(end.waits());
    find(0);
  }
}

TEST(LaneEnd, LooksAgainOnlyLongAfterItsLastLook) {
  if (!kHasCpuTicks) BP_SKIP("this processor has no ticks");
  find(1);
  find(1);
  uint64_t soon_count = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t begin = cpu_ticks();
    find(1);
    find(1);
    soon_count += cpu_ticks() - begin < LaneEnd::kTicksBetweenLooks ? 1 : 0;
  }
  CHECK_EQUAL(0, soon_count);
}

// The items are pointers. The consumer must also see the values behind them.
TEST(SpscFifo, TwoThreadsSeeEveryItemOnceInOrderWithItsContent) {
  constexpr uint64_t kItems = test::kIsSanitized ? 200'000 : 2'000'000;
  constexpr uint64_t kCells = 64;
  using PointerFifo = SpscFifo<uint64_t*>;
  const uint64_t needed = PointerFifo::bytes_for(kCells / 2);
  memory = static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, needed + kGuardBytes));
  bytes = needed;
  std::fill_n(memory + bytes, kGuardBytes, kGuard);
  PointerFifo& lane = *PointerFifo::create({memory, needed}, kCells / 2);
  // Twice as many cells as slots: a cell is written again only after its item was taken.
  std::vector<uint64_t> cells(kCells);
  std::atomic<uint64_t> taken{0};
  std::thread producer([&] {
    for (uint64_t i = 0; i < kItems; ++i) {
      while (i >= taken.load(std::memory_order_acquire) + kCells) std::this_thread::yield();
      cells[i % kCells] = i;
      while (!lane.try_push(&cells[i % kCells])) std::this_thread::yield();
    }
  });
  std::mt19937_64 random(1);
  uint64_t wrong = 0;
  uint64_t expected = 0;
  while (expected < kItems) {
    uint64_t* batch[32];
    const size_t count = lane.pop_batch({batch, 1 + random() % 32});
    for (size_t i = 0; i < count; ++i) wrong += *batch[i] != expected++;
    taken.store(expected, std::memory_order_release);
    if (count == 0) std::this_thread::yield();
  }
  producer.join();
  CHECK_EQUAL(0, wrong);
  uint64_t* none[1];
  CHECK_EQUAL(0, lane.pop_batch(none));
}
