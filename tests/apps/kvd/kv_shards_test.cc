// kvd on several shards as a whole, in the test's thread: what it plans suffices for what it
// creates; clients, messages, limits and a drain reach all shards.
#include <memory>
#include <string>

#include "apps/kvd/key_owner_datapath.h"
#include "apps/kvd/kv_service.h"
#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::MessagePeer;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

TEST_GROUP(KvShards) {
  // Allocated on its own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<KvService> service = std::make_unique<KvService>();
  TestAppliance appliance{{service.get()}};

  static std::string tables(const std::string& more = "") {
    return "[[shard]]\nname = \"front\"\ncpu = 0\n[[shard]]\nname = \"middle\"\ncpu = 1\n"
           "[[shard]]\nname = \"back\"\ncpu = 2\n"
           "[kvd]\nlisten = [\"tcp:127.0.0.1:11211\"]\nmax_connections = 3\n" +
           (more.empty() ? "shards = [\"front\", \"middle\", \"back\"]\ncache_bytes = \"6 MiB\"\n"
                           "value_max_bytes = \"256 KiB\"\n"
                         : more);
  }
  uint64_t counter(const char* name, const char* shard) {
    return appliance.counter("kvd", name, shard).value();
  }
  uint64_t sum(const char* name) {
    return counter(name, "front") + counter(name, "middle") + counter(name, "back");
  }
};

TEST(KvShards, ServeKeysOfAllShards) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient client = appliance.connect("kvd", "listen"),
             other = appliance.connect("kvd", "listen");
  std::string sets, stored, gets = "get", values;
  for (int i = 0; i < 100; ++i) {
    const std::string key = "key" + std::to_string(i);
    sets += "set " + key + " 0 0 1\r\nx\r\n";
    stored += "STORED\r\n";
    gets += " " + key;
    values += "VALUE " + key + " 0 1\r\nx\r\n";
  }
  CHECK(client.send(sets));
  STRCMP_EQUAL(stored.c_str(), client.receive(stored.size()).c_str());
  CHECK(other.send(gets + "\r\n"));
  STRCMP_EQUAL((values + "END\r\n").c_str(), other.receive_all().c_str());
  CHECK(sum("sets") == 100 && sum("hits") == 100);
  for (const char* const shard : {"front", "middle", "back"}) {
    CHECK(counter("sets", shard) > 10);
    CHECK(counter("items", shard) == counter("sets", shard));
  }
  CHECK(counter("connections_open", "front") == 2);
  CHECK(counter("crossed", "front") > 100);
  CHECK(counter("crossings", "front") < counter("crossed", "front") / 4);
}

TEST(KvShards, LongValuesAndClientsThatLeave) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  const std::string value(200'000, 'v');
  for (int round = 0; round < 3; ++round) {
    TestClient leaves = appliance.connect("kvd", "listen");
    CHECK(leaves.send("set apple 0 0 200000\r\nthe beginning"));
    appliance.run();
    leaves.close();
    appliance.run();
    CHECK(counter("connections_open", "front") == 0);
  }
  TestClient client = appliance.connect("kvd", "listen");
  CHECK(client.send("set apple 0 0 200000\r\n" + value + "\r\n"));
  STRCMP_EQUAL("STORED\r\n", client.receive(8).c_str());
  CHECK(client.send("get apple c apple\r\n"));
  const std::string got = "VALUE apple 0 200000\r\n" + value + "\r\n";
  CHECK(client.receive(2 * got.size() + 5) == got + got + "END\r\n");
  CHECK(client.send("stats\r\n"));
  STRCMP_CONTAINS("STAT threads 3\r\n", client.receive_all().c_str());
}

TEST(KvShards, ADrainAnswersWhatHasCome) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient client = appliance.connect("kvd", "listen");
  CHECK(client.send("set apple 0 0 3\r\nred\r\nget apple c\r\n"));
  CHECK(appliance.drain());
  STRCMP_EQUAL("STORED\r\nVALUE apple 0 3\r\nred\r\nEND\r\n", client.receive_all().c_str());
  CHECK(client.is_closed());
}

// A process reaches the first shard alone.
TEST(KvShards, AMessageForAKeyOfAnotherShardIsToldItsOwner) {
  MessagePeer& reader = appliance.add_peer("reader");
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  CHECK_EQUAL(1, kvd::owner_of("apple", 3));
  CHECK_EQUAL(0, kvd::owner_of("c", 3));
  TestClient client = appliance.connect("kvd", "listen");
  CHECK(client.send("set apple 0 0 3\r\nred\r\nset c 0 0 1\r\nC\r\n"));
  STRCMP_EQUAL("STORED\r\nSTORED\r\n", client.receive_all().c_str());
  CHECK(reader.send("kvd.get", "\7tag1apple") == SendStatus::kDone);
  CHECK(reader.send("kvd.get", "\7tag2c") == SendStatus::kDone);
  appliance.run();
  LONGS_EQUAL(2, reader.received.size());
  CHECK(reader.received[0].payload == "tag1\3\1");
  CHECK(reader.received[1].payload == std::string("tag2\0C", 6));
  CHECK(counter("gets", "front") == 1);
}

TEST(KvShards, AShardThatIsFullBesideAnEmptyOneIsTold) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  appliance.tick();
  CHECK(sum("unused_bytes") == 0);
  TestClient client = appliance.connect("kvd", "listen");
  const std::string value(200'000, 'v');
  for (int i = 0, stored = 0; stored < 20; ++i) {
    const std::string key = "key" + std::to_string(i);
    if (kvd::owner_of(key, 3) != 2) continue;
    ++stored;
    CHECK(client.send("set " + key + " 0 0 200000\r\n" + value + "\r\n"));
    STRCMP_EQUAL("STORED\r\n", client.receive(8).c_str());
  }
  CHECK(counter("evictions", "back") > 0);
  appliance.tick();
  CHECK(counter("unused_bytes", "front") > 1024 * 1024);
  CHECK(counter("unused_bytes", "back") == 0);
}

TEST(KvShards, RefusesPartsThatAreTooSmall) {
  STRCMP_CONTAINS(
      "checking cache_bytes in [kvd]: each of 2 shards would have less than 1 MiB; raise it, or "
      "name fewer shards",
      appliance.plan(tables("shards = [\"front\", \"back\"]\ncache_bytes = \"1 MiB\"\n")).c_str());
}

TEST(KvShards, RefusesValuesThatAPartCannotHold) {
  STRCMP_CONTAINS("it is more than a quarter of the cache of a shard; raise cache_bytes, or lower "
                  "value_max_bytes",
                  appliance
                      .plan(tables("shards = [\"front\", \"back\"]\ncache_bytes = \"4 MiB\"\n"
                                   "value_max_bytes = \"1 MiB\"\n"))
                      .c_str());
}

TEST(KvShards, RefusesAShardThatIsNamedTwice) {
  CHECK(!appliance.plan(tables("shards = [\"front\", \"front\"]\n")).empty());
}

TEST(KvShards, EachHasItsMemory) {
  STRCMP_EQUAL("", appliance.plan(tables()).c_str());
  const ServiceNeeds& needs = appliance.needs(*service);
  LONGS_EQUAL(3, needs.segments.size());
  const char* const names[] = {"kvd", "shard-1:kvd", "shard-2:kvd"};
  for (size_t i = 0; i < 3; ++i) {
    STRCMP_EQUAL(names[i], std::string(needs.segments[i].owner.view()).c_str());
    CHECK_EQUAL(2 * 1024 * 1024, needs.segments[i].carves[0].bytes);
  }
  CHECK_EQUAL(3 * 2, needs.shards[0].questions);
  CHECK_EQUAL(0, needs.shards[1].connections);
}
