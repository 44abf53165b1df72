// Streams of services in C: sends of several pieces, and receives that end early.
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/c_interface/bedplate_service.h"
#include "apps/services/service.h"
#include "apps/testing/c_service.h"
#include "apps/testing/test_appliance.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::testing::TestAppliance;
using bedplate::testing::TestClient;

namespace {

struct Streams {
  bp_stream* stream = nullptr;
  std::vector<int64_t> results;
};

void ended(void* self, int64_t result) { static_cast<Streams*>(self)->results.push_back(result); }

}  // namespace

TEST_GROUP(SocketsC) {
  Streams streams;
  bp_service described = {};
  std::unique_ptr<Service> service;
  std::unique_ptr<TestAppliance> appliance;

  void setup() override {
    described.name = "streams";
    described.self = &streams;
    described.plan = [](void*, bp_plan* plan) {
      bp_plan_connections(plan, 0, 1, NULL);
      return 0;
    };
    described.create = [](void* self, bp_context* context) {
      static_cast<Streams*>(self)->stream = bp_stream_create(context, 0);
      return 0;
    };
    service = testing::make_service(described);
    appliance = std::make_unique<TestAppliance>(std::vector<Service*>{service.get()});
    STRCMP_EQUAL("", appliance->boot("[streams]\n").c_str());
  }
  void teardown() override { appliance.reset(); }

  // The other end of the service's stream.
  TestClient open() {
    Fd other;
    TestClient client = appliance->socket_pair(&other);
    LONGS_EQUAL(0, bp_stream_open(streams.stream, other.release()));
    return client;
  }
};

TEST(SocketsC, SendSeveralPiecesInOrder) {
  TestClient client = open();
  const std::string value(200'000, 'v');
  bp_piece pieces[] = {{"head ", 5}, {value.data(), value.size()}, {" tail", 5}};
  bp_stream_send_pieces(streams.stream, pieces, 3, &ended, &streams);
  pieces[0] = {"gone", 4};  // the array was copied
  CHECK(client.receive(200'010) == "head " + value + " tail");
  appliance->run();
  LONGS_EQUAL(1, streams.results.size());
  LONGS_EQUAL(200'010, streams.results[0]);
  bp_stream_send(streams.stream, "one", 3, &ended, &streams);
  STRCMP_EQUAL("one", client.receive(3).c_str());
  bp_stream_close(streams.stream);
}

TEST(SocketsC, EndAReceiveThatWaits) {
  TestClient client = open();
  char got[8] = {};
  bp_stream_receive(streams.stream, got, sizeof got, 1, &ended, &streams);
  appliance->run();
  LONGS_EQUAL(0, streams.results.size());
  bp_stream_end_receive(streams.stream);
  appliance->run();
  LONGS_EQUAL(1, streams.results.size());
  LONGS_EQUAL(-ECANCELED, streams.results[0]);
  CHECK(client.send("late"));
  bp_stream_receive(streams.stream, got, sizeof got, 4, &ended, &streams);
  appliance->run();
  LONGS_EQUAL(4, streams.results.at(1));
  STRCMP_EQUAL("late", got);
  bp_stream_close(streams.stream);
}
