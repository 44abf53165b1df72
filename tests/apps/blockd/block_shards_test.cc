// A block service with connections on two of three shards, in the test's thread and by its clock:
// what it plans suffices for what it creates; clients, limits, methods and a drain reach all
// shards.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "apps/blockd/block_service.h"
#include "apps/testing/test_appliance.h"
#include "platform/units.h"
#include "tests/apps/blockd/nbd_reference.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;
using nbd_reference::be;

TEST_GROUP(BlockShards) {
  // Allocated on its own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<BlockService> service = std::make_unique<BlockService>();
  TestAppliance appliance{{service.get()}};

  // Clients take turns: the first one is on the shard "front", the next on "middle".
  static std::string tables(const std::string& shards =
                                "connections_shards = [\"front\", \"middle\"]\n") {
    return "[[shard]]\nname = \"front\"\ncpu = 0\n[[shard]]\nname = \"middle\"\ncpu = 1\n"
           "[[shard]]\nname = \"back\"\ncpu = 2\n"
           "[blockd]\nlisten = [\"tcp:127.0.0.1:10809\"]\n" +
           shards +
           "max_connections = 4\nrequests_per_connection = 8\n"
           "[[blockd.volume]]\nname = \"ram0\"\nbytes = \"1 MiB\"\nshard = \"middle\"\n"
           "[[blockd.volume]]\nname = \"ram1\"\nbytes = \"1 MiB\"\nshard = \"back\"\n";
  }
  TestClient client(std::string_view volume) {
    TestClient made = appliance.connect("blockd", "listen");
    CHECK(made.send(be(3, 4) + nbd_reference::option(7, nbd_reference::info_data(volume))));
    LONGS_EQUAL(18 + 52, made.receive(18 + 52).size());
    return made;
  }
  static std::string read(uint64_t cookie) { return nbd_reference::request(0, 0, cookie, 0, 512); }
  // How many answers to reads have come.
  static size_t answers(TestClient & client) { return client.receive_all().size() / (16 + 512); }
  static bool reads(TestClient & client) { return client.send(read(1)) && answers(client) == 1; }
  // The error of the answer to a write.
  static uint64_t error_of_write(TestClient & client) {
    CHECK(client.send(nbd_reference::request(0, 1, 7, 0, 4) + "data"));
    const std::string answer = client.receive_all();
    LONGS_EQUAL(16, answer.size());
    return nbd_reference::number_at(answer, 4, 4);
  }
  uint64_t counter(const char* name, const char* instance) {
    return appliance.counter("blockd", name, instance).value();
  }
  std::string result(std::string_view method, std::string_view parameters) {
    const std::string answer = appliance.call(method, parameters);
    const std::string head = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":";
    return answer.starts_with(head) ? answer.substr(head.size(), answer.size() - head.size() - 1)
                                    : answer;
  }
};

TEST(BlockShards, EachHasItsPart) {
  STRCMP_EQUAL("", appliance.plan(tables()).c_str());
  const ServiceNeeds& needs = appliance.needs(*service);
  const auto has = [&needs](const char* owner) {
    return std::any_of(
        needs.segments.begin(), needs.segments.end(), [owner](const SegmentRequest& segment) {
          return std::any_of(
              segment.carves.begin(), segment.carves.end(),
              [owner](const CarvePlan& carve) { return carve.owner.view() == owner; });
        });
  };
  for (const char* const owner :
       {"connections:blockd", "connections-1:blockd", "buffers:blockd.discard",
        "buffers:blockd.discard-1", "fifo:blockd.requests-0", "fifo:blockd.replies-1",
        "fifo:blockd.requests-1-0", "fifo:blockd.replies-1-1", "fifo:blockd.limited-1",
        "fifo:blockd.passed-1"}) {
    CHECK_TEXT(has(owner), owner);
  }
  CHECK_FALSE(has("fifo:blockd.limited-0") || has("connections-2:blockd"));
  CHECK_EQUAL(2, needs.shards[0].connections);
  CHECK_EQUAL(2, needs.shards[1].connections);
  CHECK_EQUAL(0, needs.shards[2].connections);
  CHECK_EQUAL(2, needs.shards[0].sources);  // connections, and the limits for the other shard
  CHECK_EQUAL(2, needs.shards[1].sources);  // connections, and a volume
  CHECK_EQUAL(1, needs.shards[2].sources);
  CHECK_EQUAL(0, needs.shards[1].timers);
  LONGS_EQUAL(2, needs.listens[0].place_count());
}

TEST(BlockShards, OneShardPlansNothingForOthers) {
  STRCMP_EQUAL("", appliance.plan(tables("connections_shards = [\"middle\"]\n")).c_str());
  const ServiceNeeds& needs = appliance.needs(*service);
  CHECK_EQUAL(4, needs.shards[1].connections);
  LONGS_EQUAL(6, needs.segments[0].carves.size());  // connections, discard, two lanes for each
  for (const CounterSet& set : needs.counters) {
    CHECK(set.role == CounterSetRole::kAlone);
    CHECK(set.name != "moves" && set.name != "lanes" && set.name != "volume_requests");
  }
}

TEST(BlockShards, ServeClientsOnEach) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient far = client("ram0"), near = client("ram0"), other = client("ram1");
  CHECK(counter("connections_open", "front") == 2 && counter("connections_open", "middle") == 1);
  CHECK(counter("connections_open", "") == 3 && counter("connections_moved", "") == 1);
  for (int i = 0; i < 5; ++i) CHECK(reads(near));
  CHECK(counter("crossings", "front") == 0 && counter("crossings", "middle") == 0);
  for (int i = 0; i < 3; ++i) CHECK(reads(far));
  CHECK(reads(other));
  CHECK(counter("crossings", "front") == 4 && counter("crossings", "middle") == 0);
  CHECK(counter("requests_read", "") == 9 && counter("requests_read", "middle") == 5);
  CHECK(counter("requests_read", "ram0@0") == 3 && counter("requests_read", "ram0@1") == 5);
  appliance.tick();
  CHECK(counter("requests_read", "ram0") == 8 && counter("requests_read", "ram1") == 1);
  CHECK(counter("request_ns", "ram0") == 8);
}

TEST(BlockShards, WhatOneHasWrittenTheOtherReads) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient far = client("ram0"), near = client("ram0");
  const std::string data(512, 'd');
  CHECK(far.send(nbd_reference::request(0, 1, 1, 0, 512) + data));
  LONGS_EQUAL(16, far.receive(16).size());
  CHECK(near.send(read(2)));
  STRCMP_EQUAL(data.c_str(), near.receive(16 + 512).substr(16).c_str());
}

TEST(BlockShards, MethodsReachAllOfThem) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient clients[] = {client("ram0"), client("ram0")};
  STRCMP_EQUAL("{\"volume\":\"ram0\",\"read_only\":true,\"shards\":[\"front\",\"middle\"]}",
               result("blockd.read_only", "{\"volume\":\"ram0\",\"on\":true}").c_str());
  for (TestClient& each : clients) CHECK_EQUAL(1, error_of_write(each));
  STRCMP_CONTAINS("\"volume\":\"ram0\",\"shard\":\"middle\",\"bytes\":1048576,\"read_only\":true",
                  result("blockd.volumes", "{}").c_str());
  STRCMP_CONTAINS("\"read_only\":false",
                  result("blockd.read_only", "{\"volume\":\"ram0\",\"on\":false}").c_str());
  for (TestClient& each : clients) CHECK_EQUAL(0, error_of_write(each));
  STRCMP_EQUAL("{\"listening\":false,\"shards\":[\"front\",\"middle\"]}",
               result("blockd.listen", "{\"on\":false}").c_str());
  TestClient late = appliance.connect("blockd", "listen");
  CHECK(late.is_closed());
  STRCMP_CONTAINS("\"released\":0",
                  result("blockd.hold", "{\"volume\":\"ram0\",\"on\":true}").c_str());
  for (TestClient& each : clients) CHECK(each.send(read(1)));
  for (TestClient& each : clients) LONGS_EQUAL(0, answers(each));
  STRCMP_CONTAINS("\"released\":2",
                  result("blockd.hold", "{\"volume\":\"ram0\",\"on\":false}").c_str());
  for (TestClient& each : clients) LONGS_EQUAL(1, answers(each));
}

// Both clients use up one budget, and take turns as their requests have come.
TEST(BlockShards, ALimitIsOneBudget) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient near = client("ram0"), far = client("ram0");
  result("blockd.limit", "{\"volume\":\"ram0\",\"read_rate\":10,\"burst_ms\":100}");
  CHECK(far.send(read(1) + read(2)));
  LONGS_EQUAL(1, answers(far));
  CHECK(near.send(read(1)));
  LONGS_EQUAL(0, answers(near));
  CHECK(counter("reads_waiting", "ram0") == 2);
  for (int i = 0; i < 100; ++i) LONGS_EQUAL(0, appliance.run_round());  // waiting costs no polling
  appliance.advance(100 * kNsPerMs);
  LONGS_EQUAL(1, answers(far));
  LONGS_EQUAL(0, answers(near));
  appliance.advance(100 * kNsPerMs);
  LONGS_EQUAL(1, answers(near));
  CHECK(counter("reads_waiting", "ram0") == 0 && counter("read_wait_ns", "ram0") == 2);
  CHECK(far.send(read(3) + read(4)) && near.send(read(2)));
  result("blockd.unlimit", "{\"volume\":\"ram0\"}");
  LONGS_EQUAL(2, answers(far));
  LONGS_EQUAL(1, answers(near));
  CHECK(reads(far) && reads(near));
}

TEST(BlockShards, AFarClientThatLeavesUsesNoBudget) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient near = client("ram0"), far = client("ram0");
  result("blockd.limit", "{\"listener\":\"tcp:127.0.0.1:10809\",\"read_rate\":1,\"burst_ms\":1}");
  CHECK(near.send(read(1) + read(2)));
  LONGS_EQUAL(1, answers(near));
  CHECK(far.send(read(1) + read(2) + read(3)));
  LONGS_EQUAL(0, answers(far));
  CHECK(counter("reads_waiting", "tcp:127.0.0.1:10809") == 4);
  far.close();
  appliance.run();
  CHECK(counter("reads_waiting", "tcp:127.0.0.1:10809") == 1);
  CHECK(counter("connections_open", "middle") == 0);
}

TEST(BlockShards, ADrainAnswersOnEach) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient near = client("ram0"), far = client("ram0");
  result("blockd.limit", "{\"volume\":\"ram0\",\"read_rate\":1,\"burst_ms\":1}");
  CHECK(far.send(read(1) + read(2) + read(3)));
  LONGS_EQUAL(1, answers(far));
  CHECK(near.send(read(1)));
  LONGS_EQUAL(0, answers(near));
  CHECK(appliance.drain());
  LONGS_EQUAL(2, answers(far));
  LONGS_EQUAL(1, answers(near));
  CHECK(near.is_closed() && far.is_closed());
}

TEST(BlockShards, RefusesWrongShards) {
  STRCMP_CONTAINS("no shard has the name \"nobody\"",
                  appliance.plan(tables("connections_shards = [\"nobody\"]\n")).c_str());
}

TEST(BlockShards, RefusesAShardThatIsNamedTwice) {
  CHECK(!appliance.plan(tables("connections_shards = [\"front\", \"front\"]\n")).empty());
}

TEST(BlockShards, RefusesBothKeys) {
  STRCMP_CONTAINS("\"connections_shards\" names the shards, too; expected only one of them",
                  appliance
                      .plan(tables("connections_shards = [\"front\", \"middle\"]\n"
                                   "connections_shard = \"front\"\n"))
                      .c_str());
}
