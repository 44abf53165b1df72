// The data path's law (tests/support/datapath_law.h) for BufferPool and KeyedCache.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "alloc/buffer_pool_datapath.h"
#include "tests/alloc/keyed_cache_rig.h"
#include "tests/support/datapath_law.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(AllocLaw){};

// Buffers come from a shard's cache and, in batches, from the stack that all shards share.
TEST(AllocLaw, BufferPools) {
  BP_SKIP_WITHOUT_LAW();
  const BufferPool::Options options = {.buffer_bytes = 100, .buffer_count = 200, .shard_count = 2};
  const uint64_t bytes = BufferPool::bytes_for(options);
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kCacheLineBytes, bytes));
  BufferPool& pool = *BufferPool::create({memory, bytes}, options);
  std::byte* taken[200] = {};
  bool is_right = true;
  LONGS_EQUAL(0, breaches_in([&] {
                for (int round = 0; round < 10; ++round) {
                  uint32_t count = 0;
                  while ((taken[count] = pool.try_take(0)) != nullptr && ++count < 200) {
                  }
                  is_right &= count >= 200 - BufferPool::kCacheMax && pool.in_use_count() == count;
                  while (count > 0) pool.give_back(1, taken[--count]);
                  for (std::byte*& one : taken) one = pool.try_take(1);
                  for (std::byte* one : taken) {
                    if (one != nullptr) pool.give_back(0, one);
                  }
                }
              }));
  CHECK(is_right);
  std::free(memory);
}

// The cache is full, so that new items evict others. Items are found, replaced, pinned, unlinked
// and flushed.
TEST(AllocLaw, KeyedCaches) {
  BP_SKIP_WITHOUT_LAW();
  KeyedCacheCounters counters;
  KeyedCacheRig rig(64 * 1024, 0, counters);
  std::string keys[256];
  for (size_t i = 0; i < std::size(keys); ++i) keys[i] = "key" + std::to_string(i);
  uint32_t made = 0;
  uint32_t found = 0;
  LONGS_EQUAL(0, breaches_in([&] {
                for (uint32_t round = 0; round < 10; ++round) {
                  for (const std::string& key : keys) {
                    CacheItem* item = rig.cache.make({.head = key,
                                                      .key_bytes = static_cast<uint8_t>(key.size()),
                                                      .body_bytes = 500,
                                                      .may_reuse = round % 2 == 0});
                    if (item == nullptr) continue;
                    ++made;
                    rig.cache.link(*item);
                    if (rig.cache.find(key) == item) ++found;
                    rig.cache.release(*item);
                    if (round == 5) rig.cache.unlink(*item);
                  }
                  if (round == 7) rig.cache.flush(rig.cache.now_ns());
                }
              }));
  LONGS_EQUAL(2560, made);
  LONGS_EQUAL(2560, found);
  CHECK(counters.evictions.read() > 0);
}
