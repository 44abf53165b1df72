// Limits of a whole block service, in the test's thread and by its clock: from the configuration,
// through the control socket, in the counters, and until a drain.
#include <memory>
#include <string>

#include "apps/blockd/block_service.h"
#include "apps/testing/test_appliance.h"
#include "platform/units.h"
#include "tests/apps/blockd/nbd_reference.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;
using nbd_reference::be;

TEST_GROUP(LimitMethods) {
  // Allocated on its own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<BlockService> service = std::make_unique<BlockService>();
  TestAppliance appliance{{service.get()}};

  // Requests begin with the budgets full.
  void boot() {
    STRCMP_EQUAL("", appliance
                         .boot("[blockd]\n"
                               "listen = [\"tcp:127.0.0.1:10809\", \"unix:/nbd\"]\n"
                               "max_connections = 4\nrequests_per_connection = 8\n"
                               "[[blockd.volume]]\nname = \"ram0\"\nbytes = \"1 MiB\"\n"
                               "tenant = \"acme\"\nlimits = { read_rate = 10 }\n"
                               "[[blockd.volume]]\nname = \"ram1\"\nbytes = \"1 MiB\"\n"
                               "[[blockd.tenant]]\nname = \"acme\"\n"
                               "[blockd.tenant.limits]\n"
                               "write_rate_bytes = \"64 KiB\"\nburst_ms = 500\n"
                               "[[blockd.listener]]\naddress = \"unix:/nbd\"\n"
                               "limits = { write_rate = 7 }\n")
                         .c_str());
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

  std::string result(std::string_view method, std::string_view parameters) {
    const std::string answer = appliance.call(method, parameters);
    const std::string head = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":";
    return answer.starts_with(head) ? answer.substr(head.size(), answer.size() - head.size() - 1)
                                    : answer;
  }
  void refused(const char* words, std::string_view method, std::string_view parameters) {
    STRCMP_CONTAINS(words, appliance.call(method, parameters).c_str());
  }
};

TEST(LimitMethods, ListsTheLimitsOfTheConfiguration) {
  boot();
  const std::string none = "\"reads_waiting\":0,\"writes_waiting\":0}";
  const std::string all =
      "[{\"volume\":\"ram0\",\"read_rate\":10,\"read_rate_bytes\":null,"
      "\"write_rate\":null,\"write_rate_bytes\":null,\"burst_ms\":100," +
      none +
      ",{\"volume\":\"ram1\",\"read_rate\":null,\"read_rate_bytes\":null,"
      "\"write_rate\":null,\"write_rate_bytes\":null,\"burst_ms\":100," +
      none +
      ",{\"tenant\":\"acme\",\"read_rate\":null,\"read_rate_bytes\":null,"
      "\"write_rate\":null,\"write_rate_bytes\":65536,\"burst_ms\":500," +
      none +
      ",{\"listener\":\"tcp:127.0.0.1:10809\",\"read_rate\":null,"
      "\"read_rate_bytes\":null,\"write_rate\":null,"
      "\"write_rate_bytes\":null,\"burst_ms\":100," +
      none +
      ",{\"listener\":\"unix:/nbd\",\"read_rate\":null,\"read_rate_bytes\":null,"
      "\"write_rate\":7,\"write_rate_bytes\":null,\"burst_ms\":100," +
      none + "]";
  STRCMP_EQUAL(all.c_str(), result("blockd.limits", "{}").c_str());
  CHECK(appliance.counter("blockd", "read_rate", "ram0") == 10);
  CHECK(appliance.counter("blockd", "write_rate_bytes", "acme") == 65536);
  CHECK(appliance.counter("blockd", "burst_ns", "acme") == 500 * kNsPerMs);
  CHECK(appliance.counter("blockd", "write_rate", "unix:/nbd") == 7);
}

TEST(LimitMethods, RequestsWaitByTheClock) {
  boot();
  TestClient reader = client("ram0");
  CHECK(reader.send(read(1) + read(2) + read(3)));
  LONGS_EQUAL(1, answers(reader));
  CHECK(appliance.counter("blockd", "reads_waiting", "ram0") == 2);
  appliance.advance(100 * kNsPerMs);
  LONGS_EQUAL(1, answers(reader));
  appliance.advance(100 * kNsPerMs);
  LONGS_EQUAL(1, answers(reader));
  CHECK(appliance.counter("blockd", "reads_waiting", "ram0") == 0);
  CHECK(appliance.counter("blockd", "read_wait_ns", "ram0") == 2);
}

// While requests wait nothing has work to do.
TEST(LimitMethods, WaitingCostsNoPolling) {
  boot();
  TestClient reader = client("ram0");
  CHECK(reader.send(read(1) + read(2)));
  LONGS_EQUAL(1, answers(reader));
  for (int i = 0; i < 100; ++i) LONGS_EQUAL(0, appliance.run_round());
}

TEST(LimitMethods, TwoChangesInARowBothHold) {
  boot();
  result("blockd.limit", "{\"volume\":\"ram1\",\"read_rate\":1}");
  STRCMP_EQUAL(
      "{\"volume\":\"ram1\",\"read_rate\":1,\"read_rate_bytes\":null,"
      "\"write_rate\":null,\"write_rate_bytes\":1048576,\"burst_ms\":100,"
      "\"reads_waiting\":0,\"writes_waiting\":0}",
      result("blockd.limit", "{\"volume\":\"ram1\",\"write_rate_bytes\":1048576}").c_str());
  TestClient reader = client("ram1");
  CHECK(reader.send(read(1) + read(2) + read(3)));
  LONGS_EQUAL(1, answers(reader));
  result("blockd.limit", "{\"volume\":\"ram1\",\"read_rate\":5}");
  result("blockd.limit", "{\"volume\":\"ram1\",\"read_rate\":2}");
  appliance.advance(499 * kNsPerMs);
  LONGS_EQUAL(0, answers(reader));
  appliance.advance(kNsPerMs);
  LONGS_EQUAL(1, answers(reader));
  CHECK(appliance.counter("blockd", "read_rate", "ram1") == 2);
  CHECK(appliance.counter("blockd", "write_rate_bytes", "ram1") == 1048576);
}

TEST(LimitMethods, AnEndLetsRequestsGo) {
  boot();
  result("blockd.limit", "{\"listener\":\"tcp:127.0.0.1:10809\",\"read_rate\":1,"
                         "\"write_rate\":1}");
  TestClient reader = client("ram1");
  CHECK(reader.send(read(1) + read(2) + read(3)));
  LONGS_EQUAL(1, answers(reader));
  // The end of another limit changes nothing for them.
  STRCMP_CONTAINS("\"read_rate\":1,\"read_rate_bytes\":null,\"write_rate\":null",
                  result("blockd.unlimit", "{\"listener\":\"tcp:127.0.0.1:10809\","
                                           "\"key\":\"write_rate\"}")
                      .c_str());
  LONGS_EQUAL(0, answers(reader));
  STRCMP_CONTAINS("\"read_rate\":null",
                  result("blockd.unlimit", "{\"listener\":\"tcp:127.0.0.1:10809\"}").c_str());
  LONGS_EQUAL(2, answers(reader));
}

TEST(LimitMethods, RefusesBadCalls) {
  boot();
  refused("looking for a limit: no volume, tenant or listener is given; give one: see ",
          "blockd.limit", "{\"read_rate\":1}");
  refused("looking for a limit: more than one volume, tenant or listener is given; ",
          "blockd.limit", "{\"volume\":\"ram0\",\"tenant\":\"acme\",\"read_rate\":1}");
  refused("looking for the tenant none: blockd has no tenant of this name; see: ", "blockd.unlimit",
          "{\"tenant\":\"none\"}");
  refused("changing a limit: no new value is given; ", "blockd.limit", "{\"volume\":\"ram0\"}");
  refused("changing a limit: read_rate is 0; expected 1..1000000000; ", "blockd.limit",
          "{\"volume\":\"ram0\",\"read_rate\":0}");
  refused("changing a limit: read_rate_bytes is 4095; expected 4096..1099511627776; ",
          "blockd.limit", "{\"volume\":\"ram0\",\"read_rate_bytes\":4095}");
  refused("changing a limit: burst_ms is 3600001; expected 1..3600000; ", "blockd.limit",
          "{\"volume\":\"ram0\",\"burst_ms\":3600001}");
  refused("ending the limit burst_ms: no limit has this name; ", "blockd.unlimit",
          "{\"volume\":\"ram0\",\"key\":\"burst_ms\"}");
  // None of them has changed a thing.
  CHECK(appliance.counter("blockd", "read_rate", "ram0") == 10);
}

TEST(LimitMethods, ADrainEndsAllLimits) {
  boot();
  TestClient reader = client("ram0");
  CHECK(reader.send(read(1) + read(2) + read(3)));
  LONGS_EQUAL(1, answers(reader));
  CHECK(appliance.drain());
  LONGS_EQUAL(2, answers(reader));
  CHECK(reader.is_closed());
  refused(
      "changing the limit of the volume ram0: blockd is draining: waiting requests are answered",
      "blockd.limit", "{\"volume\":\"ram0\",\"read_rate\":1}");
}
