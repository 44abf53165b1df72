// The store of kvd: the index, the gap that evicts, changes' numbers, expiry, pins.
#include <map>
#include <optional>
#include <random>
#include <string>

#include "tests/apps/kvd_driver.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;

TEST_GROUP(KvdStore) {
  StoreRig rig{64 * 1024};
  Store& store = rig.store;

  bool set(const std::string& key, const std::string& value, uint64_t expires_ns = Store::kNever,
           bool may_reuse = false) {
    Item* item = store.make({key, 0, expires_ns, static_cast<uint32_t>(value.size()), may_reuse});
    if (item == nullptr) return false;
    std::memcpy(item->value(), value.data(), value.size());
    store.link(*item);
    store.release(*item);
    return true;
  }
  std::optional<std::string> value_of(const std::string& key) {
    Item* item = store.find(key);
    if (item == nullptr) return std::nullopt;
    return std::string(item->value(), item->value_bytes);
  }
  bool has(const std::string& key, const std::string& value) { return value_of(key) == value; }
};

TEST(KvdStore, FindsWhatWasSet) {
  CHECK_FALSE(value_of("a").has_value());
  CHECK(set("a", "one"));
  CHECK(set("b", ""));
  CHECK(has("a", "one") && has("b", ""));
  CHECK(set("a", "longer than the block that the first value had, by more than one line of it"));
  CHECK(has("a", "longer than the block that the first value had, by more than one line of it"));
  LONGS_EQUAL(2, rig.counters.items.read());
}

TEST(KvdStore, AnItemHoldsItsReply) {
  Item* item = store.make({"key", 17, Store::kNever, 3});
  std::memcpy(item->value(), "abc", 3);
  CHECK(item->reply() == "VALUE key 17 3\r\nabc\r\n");
  store.release(*item);
}

TEST(KvdStore, AChangeHasANewNumber) {
  set("a", "1");
  const uint64_t first = store.find("a")->cas;
  set("a", "2", Store::kNever, true);
  const uint64_t second = store.find("a")->cas;
  CHECK(second > first);
  set("b", "1");
  CHECK(store.find("b")->cas > second);
  LONGS_EQUAL(second, store.find("a")->cas);
}

TEST(KvdStore, UnlinkedIsGone) {
  set("a", "1");
  store.unlink(*store.find("a"));
  CHECK_FALSE(value_of("a").has_value());
  LONGS_EQUAL(0, rig.counters.items.read());
  LONGS_EQUAL(0, rig.counters.bytes.read());
}

TEST(KvdStore, ExpiresAtItsTime) {
  set("a", "1", store.now_ns() + 10);
  store.set_time(store.now_ns() + 9);
  CHECK(has("a", "1"));
  store.set_time(store.now_ns() + 1);
  CHECK_FALSE(value_of("a").has_value());
  LONGS_EQUAL(0, rig.counters.items.read());
}

TEST(KvdStore, AFlushTakesWhatIsThereAtItsTime) {
  set("before", "1");
  store.flush(store.now_ns() + 10);
  CHECK(has("before", "1"));
  set("between", "1");
  store.set_time(store.now_ns() + 10);
  CHECK_FALSE(value_of("before").has_value());
  CHECK_FALSE(value_of("between").has_value());
  set("after", "1");
  CHECK(has("after", "1"));
  LONGS_EQUAL(1, rig.counters.items.read());
}

TEST(KvdStore, ReusesTheBlockOnlyWhereNobodyReadsIt) {
  set("a", "1");
  Item* first = store.find("a");
  set("a", "2", Store::kNever, true);
  POINTERS_EQUAL(first, store.find("a"));
  store.pin(*first);
  set("a", "3", Store::kNever, true);
  CHECK(store.find("a") != first);
  CHECK(std::string_view(first->value(), 1) == "2");
  CHECK(has("a", "3"));
  store.release(*first);
}

TEST(KvdStore, EvictsWhatWasNotAskedFor) {
  set("wanted", "kept");
  for (int i = 0; i < 5000; ++i) {
    CHECK(set("filler" + std::to_string(i), std::string(100, 'x')));
    CHECK(has("wanted", "kept"));
  }
  CHECK(rig.counters.evictions.read() > 4000);
  CHECK(rig.counters.bytes.read() <= store.memory_bytes());
  CHECK(rig.counters.bytes.read() > store.memory_bytes() * 7 / 8);
}

TEST(KvdStore, WhatIsDeadGoesBeforeWhatLives) {
  for (int i = 0; i < 100; ++i) set("kept" + std::to_string(i), std::string(100, 'k'));
  for (int i = 0; i < 5000; ++i) {
    set("one", std::string(static_cast<size_t>(100 + i % 3 * 100), 'x'));
  }
  LONGS_EQUAL(0, rig.counters.evictions.read());
  for (int i = 0; i < 100; ++i) CHECK(has("kept" + std::to_string(i), std::string(100, 'k')));
}

TEST(KvdStore, PinnedItemsStayWhereTheyAre) {
  set("pinned", "here");
  Item* item = store.find("pinned");
  store.pin(*item);
  for (int i = 0; i < 5000; ++i) CHECK(set(std::to_string(i), std::string(500, 'x')));
  CHECK(std::string_view(item->value(), 4) == "here");
  POINTERS_EQUAL(item, store.find("pinned"));
  store.release(*item);
}

// What is dead but pinned is no reason to spare all that lives.
TEST(KvdStore, EvictsBesideWhatIsDeadAndPinned) {
  for (int i = 0; i < 12; ++i) CHECK(set(std::to_string(i), std::string(5000, 'x')));
  Item* pinned[] = {store.find("5"), store.find("11")};
  for (Item* item : pinned) {
    store.pin(*item);
    store.unlink(*item);
  }
  CHECK(set("a", std::string(20'000, 'x')));
  for (Item* item : pinned) store.release(*item);
}

TEST(KvdStore, SaysNoWhenAllIsPinned) {
  std::vector<Item*> pinned;
  while (Item* item = store.make({std::to_string(pinned.size()), 0, Store::kNever, 1000})) {
    pinned.push_back(item);
  }
  CHECK(pinned.size() > 50);
  CHECK_FALSE(set("a", std::string(1000, 'x')));
  for (Item* item : pinned) store.release(*item);
  CHECK(set("a", std::string(30'000, 'x')));
}

TEST(KvdStore, IsWhatAMapIs) {
  test::Seed seed;
  std::mt19937_64 dice(seed.value());
  std::map<std::string, std::string> model;
  std::vector<std::pair<Item*, std::string>> pinned;
  for (int i = 0; i < 200'000; ++i) {
    const std::string key = "k" + std::to_string(dice() % 400);
    switch (dice() % 8) {
      case 0:
        if (Item* item = store.find(key)) store.unlink(*item);
        model.erase(key);
        break;
      case 1:
        if (Item* item = store.find(key); item != nullptr && pinned.size() < 8) {
          store.pin(*item);
          pinned.emplace_back(item, std::string(item->reply()));
        }
        break;
      case 2:
        if (pinned.empty()) break;
        CHECK_TEXT(pinned.back().first->reply() == pinned.back().second, seed.text());
        store.release(*pinned.back().first);
        pinned.pop_back();
        break;
      case 3:
      case 4: {
        const uint64_t bytes_max = dice() % 50 == 0 ? 8000 : 300;
        const std::string value(dice() % bytes_max, static_cast<char>('a' + dice() % 26));
        if (set(key, value, Store::kNever, dice() % 2 == 0)) model[key] = value;
        break;
      }
      default:
        // Evicted or the latest, but nothing else.
        if (const auto seen = value_of(key)) CHECK_TEXT(model.at(key) == *seen, seed.text());
        break;
    }
  }
  CHECK(rig.counters.bytes.read() <= store.memory_bytes());
  for (const auto& [item, reply] : pinned) store.release(*item);
}
