// kvd on several shards as a whole, in the test's thread: what it plans suffices for what it
// creates; clients, messages, limits and a drain reach all shards.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/kvd/key_owner_datapath.h"
#include "apps/kvd/kv_service.h"
#include "apps/testing/test_appliance.h"
#include "platform/units.h"

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
           "[kvd]\nlisten = [\"tcp:127.0.0.1:11211\"]\nmax_connections = 6\n" +
           (more.empty() ? "cache_bytes = \"6 MiB\"\nvalue_max_bytes = \"256 KiB\"\n" : more);
  }
  // A listener with a limit.
  static std::string limited(const std::string& limits) {
    return tables() + "[[kvd.listener]]\naddress = \"tcp:127.0.0.1:11211\"\nlimits = { " + limits +
           " }\n";
  }
  static std::string two_shards(const char* cache, const char* value) {
    return tables(std::string("shards = [\"front\", \"back\"]\ncache_bytes = \"") + cache +
                  "\"\nvalue_max_bytes = \"" + value + "\"\n");
  }
  // The counter of one shard, or the sum.
  uint64_t counter(const char* name, const char* shard = "") {
    return appliance.counter("kvd", name, shard).value();
  }
  // Clients are spread: the first one is on "front", the second one on "middle", and so on.
  TestClient connect() { return appliance.connect("kvd", "listen"); }
};

TEST(KvShards, ServeKeysOfAllShards) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient client = connect(), other = connect();
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
  CHECK_EQUAL(100, counter("sets"));
  CHECK_EQUAL(100, counter("hits"));
  for (const char* const shard : {"front", "middle", "back"}) {
    CHECK(counter("sets", shard) > 10);
    CHECK(counter("items", shard) == counter("sets", shard));
  }
  CHECK_EQUAL(2, counter("connections_open"));
  for (const char* const shard : {"front", "middle"}) {
    CHECK_EQUAL(1, counter("connections_open", shard));
    CHECK(counter("crossed", shard) > 30);
    CHECK(counter("crossings", shard) < counter("crossed", shard) / 3);
  }
  CHECK_EQUAL(0, counter("crossed", "back"));
}

TEST(KvShards, DivideTheConnections) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  std::vector<TestClient> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(connect());
  for (TestClient& each : clients) {
    CHECK(each.send("set a 0 0 1\r\nx\r\nget a\r\n"));
    STRCMP_EQUAL("STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n", each.receive_all().c_str());
  }
  for (const char* const shard : {"front", "middle", "back"}) {
    CHECK_EQUAL(2, counter("connections_open", shard));
  }
  TestClient more = connect();
  CHECK(more.is_closed());
  CHECK_EQUAL(1, counter("connections_refused"));
  clients[3].close();
  CHECK_EQUAL(4, counter("connections_moved"));
  appliance.run();
  CHECK_EQUAL(5, counter("connections_open"));
}

TEST(KvShards, ShareTheLimitOfAListener) {
  STRCMP_EQUAL("", appliance.boot(limited("read_rate = 10, burst_ms = 50")).c_str());
  const auto waiting = [&] { return counter("reads_waiting", "tcp:127.0.0.1:11211"); };
  TestClient clients[] = {connect(), connect(), connect()};
  CHECK(clients[0].send("get a\r\n"));
  STRCMP_EQUAL("END\r\n", clients[0].receive_all().c_str());
  for (const int i : {1, 2, 0}) {
    CHECK(clients[i].send("get a\r\n"));
    STRCMP_EQUAL("", clients[i].receive_all().c_str());
  }
  CHECK_EQUAL(3, waiting());
  for (const int i : {1, 2, 0}) {
    appliance.advance(100 * kNsPerMs - 1);
    STRCMP_EQUAL("", clients[i].receive_all().c_str());
    appliance.advance(1);
    STRCMP_EQUAL("END\r\n", clients[i].receive_all().c_str());
  }
  CHECK_EQUAL(0, waiting());
  // A change holds on all shards.
  appliance.call("kvd.unlimit", "{\"listener\":\"tcp:127.0.0.1:11211\"}");
  for (TestClient& each : clients) {
    CHECK(each.send("get a\r\nget a\r\n"));
    STRCMP_EQUAL("END\r\nEND\r\n", each.receive_all().c_str());
  }
  appliance.call("kvd.limit", "{\"listener\":\"tcp:127.0.0.1:11211\",\"read_rate\":1}");
  CHECK(clients[0].send("get a\r\n"));
  STRCMP_EQUAL("END\r\n", clients[0].receive_all().c_str());
  for (const int i : {1, 2}) CHECK(clients[i].send("get a\r\nget a\r\n"));
  appliance.run();
  CHECK_EQUAL(2, waiting());
  // A drain lets all go, also those whose clients have left.
  clients[2].close();
  CHECK(appliance.drain());
  STRCMP_EQUAL("END\r\nEND\r\n", clients[1].receive_all().c_str());
  CHECK(clients[1].is_closed());
}

TEST(KvShards, LongValuesAndClientsThatLeave) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  const std::string value(200'000, 'v');
  for (int round = 0; round < 3; ++round) {
    TestClient leaves = connect();
    CHECK(leaves.send("set apple 0 0 200000\r\nthe beginning"));
    appliance.run();
    leaves.close();
    appliance.run();
    CHECK_EQUAL(0, counter("connections_open"));
  }
  TestClient client = connect();
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
  TestClient clients[] = {connect(), connect(), connect()};
  const std::string request = "set apple 0 0 3\r\nred\r\nget apple c\r\n";
  for (TestClient& each : clients) CHECK(each.send(request));
  while (counter("received_bytes") < 3 * request.size()) appliance.run_round();
  CHECK(appliance.drain());
  for (TestClient& each : clients) {
    STRCMP_EQUAL("STORED\r\nVALUE apple 0 3\r\nred\r\nEND\r\n", each.receive_all().c_str());
    CHECK(each.is_closed());
  }
}

// A process reaches the first shard alone.
TEST(KvShards, AMessageForAKeyOfAnotherShardIsToldItsOwner) {
  MessagePeer& reader = appliance.add_peer("reader");
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  CHECK_EQUAL(1, kvd::owner_of("apple", 3));
  CHECK_EQUAL(0, kvd::owner_of("c", 3));
  TestClient client = connect();
  CHECK(client.send("set apple 0 0 3\r\nred\r\nset c 0 0 1\r\nC\r\n"));
  STRCMP_EQUAL("STORED\r\nSTORED\r\n", client.receive_all().c_str());
  CHECK(reader.send("kvd.get", "\7tag1apple") == SendStatus::kDone);
  CHECK(reader.send("kvd.get", "\7tag2c") == SendStatus::kDone);
  appliance.run();
  LONGS_EQUAL(2, reader.received.size());
  CHECK(reader.received[0].payload == "tag1\3\1");
  CHECK(reader.received[1].payload == std::string("tag2\0C", 6));
  CHECK_EQUAL(1, counter("gets", "front"));
}

TEST(KvShards, AShardThatIsFullBesideAnEmptyOneIsTold) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  appliance.tick();
  CHECK_EQUAL(0, counter("unused_bytes"));
  TestClient client = connect();
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
  CHECK_EQUAL(0, counter("unused_bytes", "back"));
  CHECK_EQUAL(counter("unused_bytes", "front") + counter("unused_bytes", "middle"),
              counter("unused_bytes"));
}

TEST(KvShards, RefusesPartsThatAreTooSmall) {
  STRCMP_CONTAINS(
      "checking cache_bytes in [kvd]: each of 2 shards would have less than 1 MiB; set it to \"2 "
      "MiB\" or more, or name fewer shards",
      appliance.plan(tables("shards = [\"front\", \"back\"]\ncache_bytes = \"1 MiB\"\n")).c_str());
}

TEST(KvShards, RefusesValuesThatAPartCannotHold) {
  STRCMP_CONTAINS(
      "it is 1 MiB, more than a quarter of the cache of each of 2 shards; set "
      "cache_bytes to \"8 MiB\" or more, set value_max_bytes to \"512 KiB\" or less, or "
      "name fewer shards",
      appliance.plan(two_shards("4 MiB", "1 MiB")).c_str());
}

TEST(KvShards, TakesTheCacheThatARefusalNames) {
  STRCMP_EQUAL("", appliance.plan(two_shards("8 MiB", "1 MiB")).c_str());
}

TEST(KvShards, TakesTheValuesThatARefusalNames) {
  STRCMP_EQUAL("", appliance.plan(two_shards("4 MiB", "512 KiB")).c_str());
}

TEST(KvShards, OnSixtyFourSayWhichSizesTheyNeed) {
  std::string text = "[kvd]\nlisten = [\"tcp:127.0.0.1:11211\"]\n";
  for (int i = 0; i < 64; ++i) {
    const std::string number = std::to_string(i);
    text += "[[shard]]\nname = \"s" + number + "\"\ncpu = " + number + "\n";
  }
  STRCMP_CONTAINS("it is 1 MiB, more than a quarter of the cache of each of 64 shards; set "
                  "cache_bytes to \"256 MiB\" or more, set value_max_bytes to \"256 KiB\" or less",
                  appliance.plan(text).c_str());
}

TEST(KvShards, RefusesAShardThatIsNamedTwice) {
  CHECK(!appliance.plan(tables("shards = [\"front\", \"front\"]\n")).empty());
}

TEST(KvShards, RefusesOneShardAndSeveral) {
  STRCMP_CONTAINS("\"shards\" is set beside \"shard\"; expected only one of them",
                  appliance.plan(tables("shard = \"back\"\nshards = [\"front\"]\n")).c_str());
}

TEST(KvShards, EachHasItsPlaceAndMemory) {
  STRCMP_EQUAL("", appliance.plan(tables()).c_str());
  const ServiceNeeds& needs = appliance.needs(*service);
  // In most machines all shards are on one node; else each node has a segment.
  STRCMP_EQUAL("kvd", std::string(needs.segments[0].owner.view()).c_str());
  std::vector<CarvePlan> carves;
  for (const SegmentRequest& segment : needs.segments) {
    carves.insert(carves.end(), segment.carves.begin(), segment.carves.end());
  }
  LONGS_EQUAL(9, carves.size());
  for (uint32_t i = 0; i < 3; ++i) {
    const OwnerName owner("cache-" + std::to_string(i), "kvd");
    const auto is_its = [&](const CarvePlan& carve) { return carve.owner == owner; };
    const auto cache = std::find_if(carves.begin(), carves.end(), is_its);
    CHECK(cache != carves.end() && cache->bytes == 2 * kMiB);
    LONGS_EQUAL(2, needs.shards[i].connections);
    // To each other shard, and two for the limit of the listener.
    LONGS_EQUAL(2 * (2 + 2), needs.shards[i].questions);
  }
}

TEST(KvShards, OneShardAloneHasTheNamesOfAlways) {
  STRCMP_EQUAL("", appliance
                       .boot(tables("shard = \"middle\"\ncache_bytes = \"1 MiB\"\n"
                                    "value_max_bytes = \"64 KiB\"\n"))
                       .c_str());
  const ServiceNeeds& needs = appliance.needs(*service);
  LONGS_EQUAL(1, needs.segments.size());
  std::string owners;
  for (const CarvePlan& each : needs.segments[0].carves) {
    owners += std::string(each.owner.view()) + " ";
  }
  STRCMP_EQUAL("cache:kvd index:kvd connections:kvd ", owners.c_str());
  LONGS_EQUAL(0, needs.shards[0].connections);
  LONGS_EQUAL(6, needs.shards[1].connections);
  LONGS_EQUAL(0, needs.shards[1].questions);
  TestClient client = connect();
  CHECK(client.send("set apple 0 0 3\r\nred\r\n"));
  STRCMP_EQUAL("STORED\r\n", client.receive_all().c_str());
  CHECK_EQUAL(1, counter("sets"));
  CHECK_FALSE(appliance.counter("kvd", "sets", "middle").has_value());
  CHECK_FALSE(appliance.counter("kvd", "connections_moved").has_value());
}
