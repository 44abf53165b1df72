// The buffer pool: with one shard and with two, with four shards against a model, and misuse, which
// stops debug builds.
#include "alloc/buffer_pool_datapath.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(BufferPool) {
  std::byte* memory = nullptr;
  uint64_t bytes = 0;

  BufferPool& make(const BufferPool::Options& options) {
    bytes = BufferPool::bytes_for(options);
    memory = static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes));
    return *BufferPool::create({memory, bytes}, options);
  }

  void teardown() override { std::free(memory); }
};

TEST(BufferPool, HandsOutEveryBufferOnceThenNone) {
  BufferPool& pool = make({.buffer_bytes = 100, .buffer_count = 77});
  std::set<std::byte*> taken;
  while (std::byte* buffer = pool.try_take(0)) {
    CHECK(reinterpret_cast<uintptr_t>(buffer) % kCacheLineBytes == 0);
    CHECK(buffer >= memory && buffer + 100 <= memory + bytes);
    std::memset(buffer, 1, 100);
    CHECK(taken.insert(buffer).second);
  }
  LONGS_EQUAL(77, taken.size());
  LONGS_EQUAL(77, pool.in_use_count());
  LONGS_EQUAL(77, pool.drawn_high_water_count());
  for (std::byte* buffer : taken) pool.give_back(0, buffer);
  LONGS_EQUAL(0, pool.in_use_count());
  LONGS_EQUAL(77, pool.drawn_high_water_count());
  for (int i = 0; i < 77; ++i) CHECK(pool.try_take(0) != nullptr);
  CHECK(pool.try_take(0) == nullptr);
}

TEST(BufferPool, AlignsToPages) {
  BufferPool& pool = make({.buffer_bytes = 5000, .buffer_count = 3, .alignment_bytes = 4096});
  for (int i = 0; i < 3; ++i) {
    std::byte* buffer = pool.try_take(0);
    CHECK(reinterpret_cast<uintptr_t>(buffer) % 4096 == 0);
    CHECK(buffer + 5000 <= memory + bytes);
  }
}

TEST(BufferPool, OneShardTakesWhatAnotherGivesBack) {
  BufferPool& pool = make({.buffer_bytes = 64, .buffer_count = 256, .shard_count = 2});
  for (int round = 0; round < 5000; ++round) {
    std::byte* buffer = pool.try_take(0);
    CHECK(buffer != nullptr);
    pool.give_back(1, buffer);
  }
  LONGS_EQUAL(0, pool.in_use_count());
}

// The model: a held buffer is filled with its shard's number, and each buffer exists once.
TEST(BufferPool, FourShardsAgainstAModel) {
  constexpr uint32_t kShards = 4;
  constexpr uint32_t kBuffers = 1000;
  const test::Seed seed;
  BufferPool& pool = make({.buffer_bytes = 64, .buffer_count = kBuffers, .shard_count = kShards});
  std::atomic<uint32_t> mismatch_count{0};
  std::atomic<std::byte*> parcel[kShards] = {};  // from one shard to the next
  std::vector<std::byte*> left[kShards];
  const auto work = [&](uint32_t shard) {
    std::mt19937_64 random(seed.value() + shard);
    std::vector<std::byte*>& held = left[shard];
    const auto mark = [&](std::byte* buffer) { std::memset(buffer, int(shard) + 1, 64); };
    for (int step = 0; step < 50'000; ++step) {
      const uint64_t dice = random() % 8;
      if (dice < 4 && held.size() < 200) {
        if (std::byte* buffer = pool.try_take(shard)) {
          mark(buffer);
          held.push_back(buffer);
        }
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        std::byte* buffer = held.back();
        held.pop_back();
        for (int i = 0; i < 64; ++i) {
          if (buffer[i] != std::byte(shard + 1)) mismatch_count.fetch_add(1);
        }
        if (dice == 7) buffer = parcel[(shard + 1) % kShards].exchange(buffer);
        if (buffer != nullptr) pool.give_back(shard, buffer);
      }
      if (dice == 6) {
        if (std::byte* buffer = parcel[shard].exchange(nullptr)) pool.give_back(shard, buffer);
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kShards; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  std::set<std::byte*> held;
  size_t held_count = 0;
  for (uint32_t i = 0; i < kShards; ++i) {
    if (parcel[i] != nullptr) left[i].push_back(parcel[i]);
    held.insert(left[i].begin(), left[i].end());
    held_count += left[i].size();
  }
  LONGS_EQUAL_TEXT(0, mismatch_count.load(), seed.text());
  LONGS_EQUAL_TEXT(held_count, held.size(), seed.text());
  LONGS_EQUAL_TEXT(held_count, pool.in_use_count(), seed.text());
  for (uint32_t i = 0; i < kShards; ++i) {
    while (std::byte* buffer = pool.try_take(i)) held.insert(buffer);
  }
  LONGS_EQUAL_TEXT(kBuffers, held.size(), seed.text());
}

TEST(BufferPool, DebugStopsAtADoubleGiveBack) {
  if (!BP_DEBUG) BP_SKIP("release builds do not look");
  BufferPool& pool = make({.buffer_bytes = 64, .buffer_count = 4});
  std::byte* buffer = pool.try_take(0);
  pool.give_back(0, buffer);
  BP_CHECK_DIES("is_given_back_twice", pool.give_back(0, buffer));
}

TEST(BufferPool, DebugStopsAtAWriteAfterTheGiveBack) {
  if (!BP_DEBUG) BP_SKIP("release builds do not look");
  BufferPool& pool = make({.buffer_bytes = 64, .buffer_count = 4});
  std::byte* buffer = pool.try_take(0);
  pool.give_back(0, buffer);
  buffer[63] = std::byte{1};
  BP_CHECK_DIES("is_poison_whole", (void)pool.try_take(0));
}

TEST(BufferPool, DebugStopsAtAPointerThatIsNoBuffer) {
  if (!BP_DEBUG) BP_SKIP("release builds do not look");
  BufferPool& pool = make({.buffer_bytes = 64, .buffer_count = 4});
  BP_CHECK_DIES("is_a_buffer", pool.give_back(0, pool.try_take(0) + 1));
}
