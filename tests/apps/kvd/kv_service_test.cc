// kvd as a whole, in the test's thread: what it plans suffices for what it creates, and clients,
// messages and a drain reach its parts.
#include "apps/kvd/kv_service.h"

#include <memory>
#include <string>
#include <vector>

#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::MessagePeer;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

TEST_GROUP(KvService) {
  // Allocated on its own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<KvService> service = std::make_unique<KvService>();
  TestAppliance appliance{{service.get()}};

  static std::string tables() {
    return "[kvd]\nlisten = [\"tcp:127.0.0.1:11211\"]\ncache_bytes = \"1 MiB\"\n"
           "value_max_bytes = \"64 KiB\"\nmax_connections = 2\n";
  }
};

TEST(KvService, ServesItsClients) {
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient client = appliance.connect("kvd", "listen");
  TestClient other = appliance.connect("kvd", "listen");
  CHECK(client.send("set apple 0 0 3\r\nred\r\n"));
  STRCMP_EQUAL("STORED\r\n", client.receive_all().c_str());
  CHECK(other.send("get apple pear\r\n"));
  STRCMP_EQUAL("VALUE apple 0 3\r\nred\r\nEND\r\n", other.receive_all().c_str());
  CHECK(appliance.counter("kvd", "hits") == 1);
  CHECK(appliance.counter("kvd", "misses") == 1);
  TestClient third = appliance.connect("kvd", "listen");
  CHECK(third.is_closed());
  CHECK(appliance.drain());
  CHECK(client.is_closed());
}

TEST(KvService, AnswersMessages) {
  MessagePeer& reader = appliance.add_peer("reader");
  STRCMP_EQUAL("", appliance.boot(tables()).c_str());
  TestClient client = appliance.connect("kvd", "listen");
  CHECK(client.send("set apple 0 0 3\r\nred\r\nset long 0 0 5000\r\n" + std::string(5000, 'l') +
                    "\r\n"));
  STRCMP_EQUAL("STORED\r\nSTORED\r\n", client.receive_all().c_str());
  CHECK(reader.send("kvd.get", "\7tag1apple") == SendStatus::kDone);
  CHECK(reader.send("kvd.get", "\7tag2long") == SendStatus::kDone);
  appliance.run();
  LONGS_EQUAL(2, reader.received.size());
  LONGS_EQUAL(7, reader.received[0].id);
  CHECK(reader.received[0].payload == std::string("tag1\0red", 8));
  LONGS_EQUAL(5000, reader.received[1].loan.memory.size());
  reader.release(reader.received[1]);
  appliance.run();
}

TEST(KvService, RefusesValuesThatTheCacheCannotHold) {
  STRCMP_EQUAL("kvd: checking value_max_bytes in [kvd]: it is more than a quarter of the cache; "
               "raise cache_bytes, or lower value_max_bytes",
               appliance
                   .plan("[kvd]\nlisten = [\"unix:/s\"]\ncache_bytes = \"1 MiB\"\n"
                         "value_max_bytes = \"512 KiB\"\n")
                   .c_str());
}
