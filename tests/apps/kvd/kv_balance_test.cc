// The alert of a shard that is full while another is empty.
#include "apps/kvd/kv_balance.h"

#include <memory>

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::kvd;

TEST_GROUP(KvBalance) {
  static constexpr uint64_t kBytes = 1000;
  // Allocated on their own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<Counters> full = std::make_unique<Counters>();
  std::unique_ptr<Counters> other = std::make_unique<Counters>();
  kvd::KvBalance balance;
  uint64_t now_ns = 1'000'000'000;

  void setup() override {
    balance.add(*full, kBytes);
    balance.add(*other, kBytes);
    full->cache.bytes.set(990);
    other->cache.bytes.set(500);
  }
  uint64_t look(uint64_t pass_ns = 500'000'000) {
    now_ns += pass_ns;
    balance.look(now_ns);
    CHECK_EQUAL(0, full->unused_bytes.read());
    return other->unused_bytes.read();
  }
};

TEST(KvBalance, TellsOfFreeMemoryBesideEvictions) {
  CHECK_EQUAL(0, look());
  full->cache.evictions.add(1);
  CHECK_EQUAL(500, look());
  CHECK_EQUAL(500, look());
  other->cache.bytes.set(700);
  CHECK_EQUAL(300, look());
}

TEST(KvBalance, EndsWhenTheEvictionsEnd) {
  full->cache.evictions.add(1);
  CHECK_EQUAL(500, look());
  CHECK_EQUAL(0, look(kvd::KvBalance::kEvictsNs));
}

TEST(KvBalance, AllShardsMayBeFull) {
  other->cache.bytes.set(750);
  full->cache.evictions.add(1);
  CHECK_EQUAL(0, look());
  other->cache.bytes.set(749);
  CHECK_EQUAL(251, look());
}

// The sum of all shards is the memory that is free.
TEST(KvBalance, TwoFullShardsDoNotCountItTwice) {
  const auto third = std::make_unique<Counters>();
  balance.add(*third, kBytes);
  third->cache.bytes.set(1000);
  third->cache.evictions.add(1);
  full->cache.evictions.add(1);
  CHECK_EQUAL(500, look());
  CHECK_EQUAL(0, third->unused_bytes.read());
}

TEST(KvBalance, OneShardAloneHasNoOther) {
  kvd::KvBalance alone;
  alone.add(*full, kBytes);
  full->cache.evictions.add(1);
  full->cache.bytes.set(0);
  alone.look(now_ns);
  CHECK_EQUAL(0, full->unused_bytes.read());
}
