// A lane of a mesh: compared with a model, at the wrap of its indices, and between two threads.
#include "transport/shm/queue/mesh_lane_datapath.h"

#include <deque>
#include <random>
#include <thread>

#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(MeshLane) {
  static constexpr uint32_t kEntries = 8;

  alignas(8) std::byte queue[MeshLane::queue_bytes(kEntries)] = {};
  alignas(8) std::byte head_line[kCacheLineBytes] = {};
  alignas(8) std::byte tail_line[kCacheLineBytes] = {};
  MeshLane lane{queue, head_line, tail_line, kEntries};
  uint32_t head = 0;
  uint32_t known_tail = 0;
  uint32_t tail = 0;

  void start_at(uint32_t index) {
    head = known_tail = tail = index;
    reinterpret_cast<std::atomic<uint32_t>*>(head_line)->store(index);
    lane.set_tail(index);
  }
  bool push(uint64_t offset) {
    if (!lane.has_room(head, &known_tail)) return false;
    lane.push(head++, {SlotKind::kEager, 7, 100, offset});
    return true;
  }
  uint64_t pop() {
    if (lane.head() == tail) return UINT64_MAX;
    const LaneWord word = lane.at(tail);
    lane.set_tail(++tail);
    return word.kind == SlotKind::kEager && word.am == 7 && word.bytes == 100 ? word.offset
                                                                              : UINT64_MAX - 1;
  }
};

TEST(MeshLane, GivesBackWhatWasPushedInOrder) {
  LONGS_EQUAL(kEntries, lane.capacity());
  CHECK(push(1) && push(2));
  LONGS_EQUAL(1, pop());
  LONGS_EQUAL(2, pop());
  CHECK(pop() == UINT64_MAX);
}

TEST(MeshLane, FullSaysNo) {
  for (uint64_t i = 0; i < kEntries; ++i) CHECK(push(i));
  CHECK_FALSE(push(99));
  LONGS_EQUAL(0, pop());
  CHECK(push(kEntries));
  CHECK_FALSE(push(99));
  for (uint64_t i = 1; i <= kEntries; ++i) LONGS_EQUAL(i, pop());
}

TEST(MeshLane, IndicesWrap) {
  start_at(UINT32_MAX - 5);
  for (uint64_t i = 0; i < 100; ++i) {
    CHECK(push(2 * i) && push(2 * i + 1));
    LONGS_EQUAL(2 * i, pop());
    LONGS_EQUAL(2 * i + 1, pop());
  }
  for (uint64_t i = 0; i < kEntries; ++i) CHECK(push(i));
  CHECK_FALSE(push(99));
}

TEST(MeshLane, AForgedTailOnlyMakesItFull) {
  for (uint64_t i = 0; i < kEntries; ++i) CHECK(push(i));
  lane.set_tail(head + 1);  // beyond the head
  CHECK_FALSE(push(99));
  lane.set_tail(head - kEntries - 1);  // further back than the capacity
  CHECK_FALSE(push(99));
  LONGS_EQUAL(0, known_tail);  // the forged tails are ignored
  lane.set_tail(3);
  CHECK(push(99));
  LONGS_EQUAL(3, known_tail);
}

TEST(MeshLane, RandomAgainstAModel) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  start_at(UINT32_MAX - 1000);
  std::deque<uint64_t> model;
  for (uint64_t i = 0; i < 100000; ++i) {
    if (random() % 2 == 0) {
      CHECK_TEXT(push(i) == (model.size() < kEntries), seed.text());
      if (model.size() < kEntries) model.push_back(i);
    } else {
      CHECK_TEXT(pop() == (model.empty() ? UINT64_MAX : model.front()), seed.text());
      if (!model.empty()) model.pop_front();
    }
  }
}

TEST(MeshLane, BetweenTwoThreads) {
  constexpr uint64_t kCount = 200000;
  std::thread producer([&] {
    for (uint64_t i = 0; i < kCount; ++i) {
      while (!push(i)) std::this_thread::yield();
    }
  });
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kCount;) {
    const uint64_t got = pop();
    if (got == UINT64_MAX) {
      std::this_thread::yield();
      continue;
    }
    if (got != i++) ++wrong;
  }
  producer.join();
  LONGS_EQUAL(0, wrong);
}

TEST(MeshLane, WordsSurvivePacking) {
  test::Seed seed;
  std::mt19937_64 random(seed.value());
  for (int i = 0; i < 10000; ++i) {
    LaneWord word;
    word.kind = static_cast<SlotKind>(random() % 7);
    word.am = static_cast<uint32_t>(random() % 256);
    word.bytes = static_cast<uint32_t>(random() % (kSlotBytesMax + 1));
    word.offset = random() % (uint64_t{1} << 40);
    const LaneWord back = unpack_lane_word(pack_lane_word(word));
    CHECK_TEXT(back.kind == word.kind && back.am == word.am && back.bytes == word.bytes &&
                   back.offset == word.offset,
               seed.text());
  }
}
