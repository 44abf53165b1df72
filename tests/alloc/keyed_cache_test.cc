// KeyedCache: finding items by key, eviction, versions, expiry, and pinned items.
#include <map>
#include <optional>
#include <random>
#include <string>

#include "tests/alloc/keyed_cache_rig.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint16_t kKeyOffset = 1;

}  // namespace

TEST_GROUP(KeyedCache) {
  KeyedCacheCounters counters;
  KeyedCacheRig rig{64 * 1024, kKeyOffset, counters};
  KeyedCache& cache = rig.cache;

  CacheItem* make(const std::string& key, size_t body_bytes,
                  uint64_t expires_ns = KeyedCache::kNever, bool may_reuse = false) {
    const std::string head = "<" + key + ">";
    return cache.make({.head = head,
                       .key_bytes = static_cast<uint8_t>(key.size()),
                       .body_bytes = static_cast<uint32_t>(body_bytes),
                       .note = 17,
                       .expires_ns = expires_ns,
                       .may_reuse = may_reuse});
  }
  bool set(const std::string& key, const std::string& value,
           uint64_t expires_ns = KeyedCache::kNever, bool may_reuse = false) {
    CacheItem* item = make(key, value.size(), expires_ns, may_reuse);
    if (item == nullptr) return false;
    std::memcpy(item->body(), value.data(), value.size());
    cache.link(*item);
    cache.release(*item);
    return true;
  }
  std::optional<std::string> value_of(const std::string& key) {
    CacheItem* item = cache.find(key);
    if (item == nullptr) return std::nullopt;
    return std::string(item->body(), item->body_bytes);
  }
  bool has(const std::string& key, const std::string& value) { return value_of(key) == value; }
};

TEST(KeyedCache, FindsWhatWasSet) {
  CHECK_FALSE(value_of("a").has_value());
  CHECK(set("a", "one"));
  CHECK(set("b", ""));
  CHECK(has("a", "one") && has("b", ""));
  CHECK(set("a", "longer than the block that the first value had, by more than one line of it"));
  CHECK(has("a", "longer than the block that the first value had, by more than one line of it"));
  LONGS_EQUAL(2, counters.items.read());
}

TEST(KeyedCache, AnItemIsItsHeadAndItsBody) {
  CacheItem* item = make("key", 3);
  std::memcpy(item->body(), "abc", 3);
  CHECK(item->text() == "<key>abc");
  CHECK(cache.key_of(*item) == "key");
  CHECK_EQUAL(17, item->note);
  cache.release(*item);
}

TEST(KeyedCache, AChangeHasANewVersion) {
  set("a", "1");
  const uint64_t first = cache.find("a")->version;
  set("a", "2", KeyedCache::kNever, true);
  const uint64_t second = cache.find("a")->version;
  CHECK(second > first);
  set("b", "1");
  CHECK(cache.find("b")->version > second);
  LONGS_EQUAL(second, cache.find("a")->version);
}

TEST(KeyedCache, UnlinkedIsGone) {
  set("a", "1");
  cache.unlink(*cache.find("a"));
  CHECK_FALSE(value_of("a").has_value());
  LONGS_EQUAL(0, counters.items.read());
  LONGS_EQUAL(0, counters.bytes.read());
}

TEST(KeyedCache, ExpiresAtItsTime) {
  set("a", "1", cache.now_ns() + 10);
  cache.set_time(cache.now_ns() + 9);
  CHECK(has("a", "1"));
  cache.set_time(cache.now_ns() + 1);
  CHECK_FALSE(value_of("a").has_value());
  LONGS_EQUAL(0, counters.items.read());
}

TEST(KeyedCache, AFlushTakesWhatIsThereAtItsTime) {
  set("before", "1");
  cache.flush(cache.now_ns() + 10);
  CHECK(has("before", "1"));
  set("between", "1");
  cache.set_time(cache.now_ns() + 10);
  CHECK_FALSE(value_of("before").has_value());
  CHECK_FALSE(value_of("between").has_value());
  set("after", "1");
  CHECK(has("after", "1"));
  LONGS_EQUAL(1, counters.items.read());
}

TEST(KeyedCache, ALaterFlushReplacesOnlyOneThatIsNotDue) {
  set("a", "1");
  cache.flush(cache.now_ns() + 10);
  cache.flush(cache.now_ns() + 20);
  cache.set_time(cache.now_ns() + 10);
  CHECK(has("a", "1"));
  cache.set_time(cache.now_ns() + 10);
  cache.flush(cache.now_ns() + 1000);
  CHECK_FALSE(value_of("a").has_value());
}

// A writer may have pinned the item before the flush.
TEST(KeyedCache, WhatIsLinkedAgainAfterAFlushIsCountedAgain) {
  CHECK(set("a", "value"));
  CacheItem* item = cache.find("a");
  cache.pin(*item);
  cache.flush(cache.now_ns());
  CHECK(cache.find("b") == nullptr);
  CHECK_EQUAL(0, counters.items.read());
  cache.link(*item);
  cache.release(*item);
  CHECK(has("a", "value"));
  CHECK_EQUAL(1, counters.items.read());
  CHECK(cache.is_valid());
  cache.unlink(*item);
  CHECK_EQUAL(0, counters.items.read());
  CHECK_EQUAL(0, counters.bytes.read());
}

TEST(KeyedCache, ReusesTheBlockOnlyWhereNobodyReadsIt) {
  set("a", "1");
  CacheItem* first = cache.find("a");
  set("a", "2", KeyedCache::kNever, true);
  POINTERS_EQUAL(first, cache.find("a"));
  cache.pin(*first);
  set("a", "3", KeyedCache::kNever, true);
  CHECK(cache.find("a") != first);
  CHECK(std::string_view(first->body(), 1) == "2");
  CHECK(has("a", "3"));
  cache.release(*first);
}

TEST(KeyedCache, EvictsWhatWasNotAskedFor) {
  set("wanted", "kept");
  for (int i = 0; i < 5000; ++i) {
    CHECK(set("filler" + std::to_string(i), std::string(100, 'x')));
    CHECK(has("wanted", "kept"));
  }
  CHECK(counters.evictions.read() > 4000);
  CHECK_EQUAL(cache.memory_bytes(), counters.peak_bytes.read());
  CHECK(counters.bytes.read() <= cache.memory_bytes());
  CHECK(counters.bytes.read() > cache.memory_bytes() * 7 / 8);
}

TEST(KeyedCache, ALookSavesNoItemFromEviction) {
  set("seen", "1");
  for (int i = 0; i < 5000; ++i) {
    CHECK(set("filler" + std::to_string(i), std::string(100, 'x')));
    cache.peek("seen");
  }
  CHECK(cache.peek("seen") == nullptr);
  CHECK(cache.peek("none") == nullptr);
  set("short", "1", cache.now_ns() + 1);
  POINTERS_EQUAL(cache.find("short"), cache.peek("short"));
  cache.set_time(cache.now_ns() + 1);
  CHECK(cache.peek("short") == nullptr);
  set("flushed", "1");
  cache.flush(cache.now_ns());
  CHECK(cache.peek("flushed") == nullptr);
}

// The counters of items that were evicted, or had expired, when their memory was needed, and of
// such items that were never read.
TEST(KeyedCache, CountsWhatNobodyHasRead) {
  const uint64_t soon_ns = cache.now_ns() + 1;
  for (int i = 0; i < 20; ++i) {
    CHECK(set("short" + std::to_string(i), std::string(100, 's'), soon_ns));
    CHECK(set("long" + std::to_string(i), std::string(100, 'l')));
    if (i % 4 != 0) continue;
    cache.find("short" + std::to_string(i))->is_fetched = true;
    cache.find("long" + std::to_string(i))->is_fetched = true;
  }
  CHECK(set("gone", "x", soon_ns));
  cache.unlink(*cache.find("gone"));
  cache.set_time(soon_ns);
  for (int i = 0; i < 3000; ++i) {
    CacheItem* filler = make("filler" + std::to_string(i), 100);
    CHECK(filler != nullptr);
    cache.release(*filler);  // never linked: counts as neither
  }
  LONGS_EQUAL(0, counters.evictions.read());
  LONGS_EQUAL(20, counters.reclaimed.read());
  LONGS_EQUAL(15, counters.expired_unfetched.read());
  for (int i = 0; i < 3000; ++i) CHECK(set("filler" + std::to_string(i), std::string(100, 'f')));
  const uint64_t fillers = counters.evictions.read() - 20;
  LONGS_EQUAL(15 + fillers, counters.evicted_unfetched.read());
}

TEST(KeyedCache, WhatIsDeadGoesBeforeWhatLives) {
  for (int i = 0; i < 100; ++i) set("kept" + std::to_string(i), std::string(100, 'k'));
  for (int i = 0; i < 5000; ++i) {
    set("one", std::string(static_cast<size_t>(100 + i % 3 * 100), 'x'));
  }
  LONGS_EQUAL(0, counters.evictions.read());
  CHECK(counters.peak_bytes.read() >= counters.bytes.read());
  CHECK(counters.peak_bytes.read() < cache.memory_bytes());
  for (int i = 0; i < 100; ++i) CHECK(has("kept" + std::to_string(i), std::string(100, 'k')));
}

TEST(KeyedCache, PinnedItemsStayWhereTheyAre) {
  set("pinned", "here");
  CacheItem* item = cache.find("pinned");
  cache.pin(*item);
  for (int i = 0; i < 5000; ++i) CHECK(set(std::to_string(i), std::string(500, 'x')));
  CHECK(std::string_view(item->body(), 4) == "here");
  POINTERS_EQUAL(item, cache.find("pinned"));
  cache.release(*item);
}

// Live items are evicted although a dead item is pinned.
TEST(KeyedCache, EvictsBesideWhatIsDeadAndPinned) {
  for (int i = 0; i < 12; ++i) CHECK(set(std::to_string(i), std::string(5000, 'x')));
  CacheItem* pinned[] = {cache.find("5"), cache.find("11")};
  for (CacheItem* item : pinned) {
    cache.pin(*item);
    cache.unlink(*item);
  }
  CHECK(set("a", std::string(20'000, 'x')));
  for (CacheItem* item : pinned) cache.release(*item);
}

TEST(KeyedCache, SaysNoWhenAllIsPinned) {
  std::vector<CacheItem*> pinned;
  while (CacheItem* item = make(std::to_string(pinned.size()), 1000)) {
    pinned.push_back(item);
  }
  CHECK(pinned.size() > 50);
  CHECK_FALSE(set("a", std::string(1000, 'x')));
  for (CacheItem* item : pinned) cache.release(*item);
  CHECK(set("a", std::string(30'000, 'x')));
}

TEST(KeyedCache, IsWhatAMapIs) {
  test::Seed seed;
  std::mt19937_64 dice(seed.value());
  std::map<std::string, std::string> model;
  std::vector<std::pair<CacheItem*, std::string>> pinned;
  for (int i = 0; i < 200'000; ++i) {
    const std::string key = "k" + std::to_string(dice() % 400);
    switch (dice() % 8) {
      case 0:
        if (CacheItem* item = cache.find(key)) cache.unlink(*item);
        model.erase(key);
        break;
      case 1:
        if (CacheItem* item = cache.find(key); item != nullptr && pinned.size() < 8) {
          cache.pin(*item);
          pinned.emplace_back(item, std::string(item->text()));
        }
        break;
      case 2:
        if (pinned.empty()) break;
        CHECK_TEXT(pinned.back().first->text() == pinned.back().second, seed.text());
        cache.release(*pinned.back().first);
        pinned.pop_back();
        break;
      case 3:
      case 4: {
        const uint64_t bytes_max = dice() % 50 == 0 ? 8000 : 300;
        const std::string value(dice() % bytes_max, static_cast<char>('a' + dice() % 26));
        if (set(key, value, KeyedCache::kNever, dice() % 2 == 0)) model[key] = value;
        break;
      }
      default:
        // The item is evicted, or has the latest value.
        if (const auto seen = value_of(key)) CHECK_TEXT(model.at(key) == *seen, seed.text());
        break;
    }
    if (i % 256 == 0) CHECK_TEXT(cache.is_valid(), seed.text());
  }
  CHECK(counters.bytes.read() <= cache.memory_bytes());
  for (const auto& [item, reply] : pinned) cache.release(*item);
}
