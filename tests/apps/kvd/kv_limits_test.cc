// Limits of a whole kvd, in the test's thread and by its clock: from the configuration, through the
// control socket, in the counters, and until a drain.
#include <memory>
#include <string>
#include <string_view>

#include "apps/kvd/kv_service.h"
#include "apps/testing/test_appliance.h"
#include "platform/units.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

TEST_GROUP(KvLimits) {
  // Allocated on its own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<KvService> service = std::make_unique<KvService>();
  TestAppliance appliance{{service.get()}};

  // Requests begin with the budgets full.
  void boot() {
    STRCMP_EQUAL("", appliance
                         .boot("[kvd]\nlisten = [\"tcp:127.0.0.1:11211\", \"unix:/kvd\"]\n"
                               "cache_bytes = \"1 MiB\"\nvalue_max_bytes = \"64 KiB\"\n"
                               "max_connections = 4\n"
                               "[[kvd.listener]]\naddress = \"unix:/kvd\"\n"
                               "limits = { read_rate = 10, burst_ms = 50 }\n")
                         .c_str());
  }
  TestClient free_client() { return appliance.connect("kvd", "listen", 0); }
  TestClient limited_client() { return appliance.connect("kvd", "listen", 1); }
  uint64_t reads_waiting() { return *appliance.counter("kvd", "reads_waiting", "unix:/kvd"); }
  std::string call(std::string_view method, std::string_view parameters) {
    return appliance.call(method, parameters);
  }
};

TEST(KvLimits, ListsTheLimitsOfTheConfiguration) {
  boot();
  STRCMP_CONTAINS(
      "[{\"listener\":\"tcp:127.0.0.1:11211\",\"read_rate\":null,\"read_rate_bytes\":null,"
      "\"write_rate\":null,\"write_rate_bytes\":null,\"burst_ms\":100,"
      "\"reads_waiting\":0,\"writes_waiting\":0},"
      "{\"listener\":\"unix:/kvd\",\"read_rate\":10,\"read_rate_bytes\":null,"
      "\"write_rate\":null,\"write_rate_bytes\":null,\"burst_ms\":50,"
      "\"reads_waiting\":0,\"writes_waiting\":0}]",
      call("kvd.limits", "{}").c_str());
  CHECK(appliance.counter("kvd", "read_rate", "unix:/kvd") == 10);
  CHECK(appliance.counter("kvd", "burst_ns", "unix:/kvd") == 50 * kNsPerMs);
}

TEST(KvLimits, RequestsWaitByTheClock) {
  boot();
  TestClient one = limited_client(), other = free_client();
  CHECK(one.send("get a\r\nget a\r\nget a\r\n"));
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  CHECK(reads_waiting() == 1);
  CHECK(other.send("get a\r\nget a\r\n"));
  STRCMP_EQUAL("END\r\nEND\r\n", other.receive_all().c_str());
  for (int i = 0; i < 2; ++i) {
    appliance.advance(100 * kNsPerMs);
    STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  }
  CHECK(reads_waiting() == 0);
  CHECK(appliance.counter("kvd", "read_wait_ns", "unix:/kvd") == 2);
}

// While requests wait nothing has work to do.
TEST(KvLimits, WaitingCostsNoPolling) {
  boot();
  TestClient one = limited_client();
  CHECK(one.send("get a\r\nget a\r\n"));
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  for (int i = 0; i < 100; ++i) LONGS_EQUAL(0, appliance.run_round());
}

TEST(KvLimits, TwoChangesInARowBothHold) {
  boot();
  call("kvd.limit", "{\"listener\":\"tcp:127.0.0.1:11211\",\"read_rate\":1}");
  STRCMP_CONTAINS(
      "{\"listener\":\"tcp:127.0.0.1:11211\",\"read_rate\":1,\"read_rate_bytes\":null,"
      "\"write_rate\":null,\"write_rate_bytes\":1048576,",
      call("kvd.limit", "{\"listener\":\"tcp:127.0.0.1:11211\",\"write_rate_bytes\":1048576}")
          .c_str());
  TestClient one = free_client();
  CHECK(one.send("get a\r\nget a\r\nget a\r\n"));
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  call("kvd.limit", "{\"listener\":\"tcp:127.0.0.1:11211\",\"read_rate\":5}");
  call("kvd.limit", "{\"listener\":\"tcp:127.0.0.1:11211\",\"read_rate\":2}");
  appliance.advance(499 * kNsPerMs);
  STRCMP_EQUAL("", one.receive_all().c_str());
  appliance.advance(kNsPerMs);
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  STRCMP_CONTAINS("\"read_rate\":null",
                  call("kvd.unlimit", "{\"listener\":\"tcp:127.0.0.1:11211\"}").c_str());
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
}

// The server notices that it has gone for good when it sends the next answer.
TEST(KvLimits, AClientThatLeavesTakesItsRequestsAlong) {
  boot();
  TestClient leaves = limited_client(), stays = limited_client();
  CHECK(leaves.send("get a\r\nget a\r\nget a\r\nget a\r\n"));
  STRCMP_EQUAL("END\r\n", leaves.receive_all().c_str());
  CHECK(stays.send("get a\r\n"));
  STRCMP_EQUAL("", stays.receive_all().c_str());
  CHECK(reads_waiting() == 2);
  leaves.close();
  appliance.advance(100 * kNsPerMs);
  CHECK(reads_waiting() == 1);
  CHECK(appliance.counter("kvd", "connections_open") == 1);
  appliance.advance(100 * kNsPerMs);
  STRCMP_EQUAL("END\r\n", stays.receive_all().c_str());
}

// As `printf | nc` does.
TEST(KvLimits, AClientThatOnlyEndsSendingGetsItsAnswers) {
  boot();
  TestClient one = limited_client();
  CHECK(one.send("get a\r\nget a\r\n"));
  one.end_sending();
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  appliance.advance(100 * kNsPerMs);
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  CHECK(one.is_closed());
}

TEST(KvLimits, RefusesBadCalls) {
  boot();
  STRCMP_CONTAINS("looking for the listener none: kvd has no listener of this name; see: ",
                  call("kvd.limit", "{\"listener\":\"none\",\"read_rate\":1}").c_str());
  STRCMP_CONTAINS("changing a limit: read_rate is 0; expected 1..1000000000; ",
                  call("kvd.limit", "{\"listener\":\"unix:/kvd\",\"read_rate\":0}").c_str());
  STRCMP_CONTAINS("ending the limit burst_ms: no limit has this name; ",
                  call("kvd.unlimit", "{\"listener\":\"unix:/kvd\",\"key\":\"burst_ms\"}").c_str());
  CHECK(appliance.counter("kvd", "read_rate", "unix:/kvd") == 10);
}

TEST(KvLimits, ADrainEndsAllLimits) {
  boot();
  TestClient one = limited_client();
  CHECK(one.send("get a\r\nget a\r\nget a\r\n"));
  STRCMP_EQUAL("END\r\n", one.receive_all().c_str());
  CHECK(appliance.drain());
  STRCMP_EQUAL("END\r\nEND\r\n", one.receive_all().c_str());
  CHECK(one.is_closed());
  STRCMP_CONTAINS(
      "changing the limit of the listener unix:/kvd: kvd is draining: waiting requests are "
      "answered",
      call("kvd.limit", "{\"listener\":\"unix:/kvd\",\"read_rate\":1}").c_str());
}
