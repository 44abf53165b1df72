// kvd's items: storing under each condition, joining, counting, and times of expiry.
#include <ctime>
#include <string>

#include "tests/apps/kvd/kvd_driver.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;

TEST_GROUP(KvdItems) {
  CacheRig rig{1024 * 1024};
  Items items{rig.environment};

  Items::Changed store(const std::string& key, const std::string& value,
                       const Items::StoreTerms& terms = {}) {
    CacheItem* item = items.make(key, {.flags = 7, .value_bytes = value.size()});
    CHECK(item != nullptr);
    value.copy(item->body(), value.size());
    const Items::Changed changed = items.store(*item, terms);
    rig.cache.release(*item);
    return changed;
  }
  kvd::Outcome outcome(const std::string& key, const std::string& value,
                       const Items::StoreTerms& terms) {
    return store(key, value, terms).outcome;
  }
  std::string text(const std::string& key) {
    CacheItem* item = rig.cache.find(key);
    return item != nullptr ? std::string(item->text()) : "";
  }
};

TEST(KvdItems, AnItemIsItsReply) {
  const Items::Changed changed = store("a", "abc");
  CHECK(changed.outcome == kvd::Outcome::kDone);
  POINTERS_EQUAL(rig.cache.find("a"), changed.item);
  STRCMP_EQUAL("VALUE a 7 3\r\nabc\r\n", text("a").c_str());
  CHECK(value_of(*changed.item) == "abc");
}

TEST(KvdItems, StoresWhereTheConditionHolds) {
  CHECK(outcome("a", "x", {.storing = Storing::kReplace}) == kvd::Outcome::kNotStored);
  CHECK(outcome("a", "x", {.storing = Storing::kAppend}) == kvd::Outcome::kNotStored);
  CHECK(outcome("a", "x", {.storing = Storing::kCas}) == kvd::Outcome::kNotFound);
  CHECK(outcome("a", "m", {.storing = Storing::kAdd}) == kvd::Outcome::kDone);
  CHECK(outcome("a", "x", {.storing = Storing::kAdd}) == kvd::Outcome::kNotStored);
  CHECK(outcome("a", "n", {.storing = Storing::kReplace}) == kvd::Outcome::kDone);
  CHECK(outcome("a", "r", {.storing = Storing::kAppend}) == kvd::Outcome::kDone);
  const Items::Changed joined = store("a", "l", {.storing = Storing::kPrepend});
  POINTERS_EQUAL(rig.cache.find("a"), joined.item);
  STRCMP_EQUAL("VALUE a 7 3\r\nlnr\r\n", text("a").c_str());
  const uint64_t version = joined.item->version;
  CHECK(outcome("a", "c", {.storing = Storing::kCas, .version = version + 1}) ==
        kvd::Outcome::kExists);
  CHECK(outcome("a", "c", {.storing = Storing::kCas, .version = version}) == kvd::Outcome::kDone);
  CHECK(outcome("a", "c", {.storing = Storing::kCas, .version = version}) == kvd::Outcome::kExists);
}

TEST(KvdItems, RefusesAJoinThatIsTooLong) {
  store("a", std::string(40'000, 'a'));
  CHECK(outcome("a", std::string(40'000, 'b'), {.storing = Storing::kAppend}) ==
        kvd::Outcome::kTooLarge);
  LONGS_EQUAL(1, rig.counters.too_large.read());
}

TEST(KvdItems, Counts) {
  CHECK(items.count("n", {}).changed.outcome == kvd::Outcome::kNotFound);
  store("n", "9");
  const Items::Counted counted = items.count("n", {});
  CHECK(counted.changed.outcome == kvd::Outcome::kDone);
  POINTERS_EQUAL(rig.cache.find("n"), counted.changed.item);
  LONGS_EQUAL(10, counted.number);
  LONGS_EQUAL(0, items.count("n", {.is_incr = false, .delta = 11}).number);
  STRCMP_EQUAL("VALUE n 7 2\r\n0 \r\n", text("n").c_str());
  store("n", "1a");
  CHECK(items.count("n", {}).changed.outcome == kvd::Outcome::kNotNumber);
}

TEST(KvdItems, KnowsWhenAnItemWasLastUsed) {
  CacheItem* item = store("a", "x").item;
  const auto idle_s = [&] { return (items.idle_ns(*item) + 500'000'000) / 1'000'000'000; };
  LONGS_EQUAL(0, idle_s());
  rig.cache.set_time(rig.cache.now_ns() + 3600'000'000'000);
  LONGS_EQUAL(3600, idle_s());
  LONGS_EQUAL(7, note_of(*item).flags);
  CHECK_FALSE(item->is_fetched);
  items.use(*item);
  CHECK(item->is_fetched);
  LONGS_EQUAL(0, idle_s());
  LONGS_EQUAL(7, note_of(*item).flags);
  // The count of units wraps.
  rig.cache.set_time((rig.cache.now_ns() | ((uint64_t{1} << 58) - 1)) - 1'000'000'000);
  items.use(*item);
  rig.cache.set_time(rig.cache.now_ns() + 10'000'000'000);
  LONGS_EQUAL(10, idle_s());
}

TEST(KvdItems, ExpiresByMemcachedsRules) {
  const uint64_t now_ns = rig.cache.now_ns();
  CHECK(items.expires_ns(0) == KeyedCache::kNever);
  CHECK(items.expires_ns(-1) == 0);
  CHECK(items.expires_ns(30) == now_ns + 30'000'000'000);
  CHECK(items.expires_ns(2'592'001) == 0);  // a time in 1970
  CHECK(items.expires_ns(std::time(nullptr) + 1000) > now_ns + 990'000'000'000);
}
