// The answering side of `bedplate perf` against bad clients.
#include "apps/perf/perf_server.h"

#include <cstring>
#include <vector>

#include "tests/apps/perf/perf_scripted_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

volatile sig_atomic_t must_stop = 0;

// A client that sends the test's messages. Some polls after the last one, the server stops.
class Client final : public PerfScriptedPeer {
 public:
  using PerfScriptedPeer::PerfScriptedPeer;

  struct Heard {
    AmId id;
    std::vector<std::byte> payload;
  };
  std::vector<Heard> heard;
  uint32_t put_count = 0;
  uint32_t exposed_count = 0;
  uint32_t exposed_count_max = 2;

  void ask(const PerfAsk& ask) { say(kPerfAsk, perf_payload(ask)); }
  uint32_t poll(uint32_t budget) noexcept override {
    const uint32_t count = PerfScriptedPeer::poll(budget);
    if (count == 0) must_stop = ++idle_polls_ > 20;
    return count;
  }
  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override {
    heard.push_back({id, {payload.begin(), payload.end()}});
    return SendStatus::kDone;
  }
  Result<RemoteMemory> expose(std::span<std::byte> memory) override {
    if (exposed_count == exposed_count_max) return error_while("exposing");
    ++exposed_count;
    return PerfScriptedPeer::expose(memory);
  }
  void withdraw(const RemoteMemory&) noexcept override { --exposed_count; }
  // Puts never end.
  SendStatus start(const RemoteOperation& operation) noexcept override {
    if (operation.kind != OperationKind::kPut) return SendStatus::kRefused;
    if (put_count == kPerfListed) return SendStatus::kAgain;
    ++put_count;
    return SendStatus::kPending;
  }

 private:
  int idle_polls_ = 0;
};

}  // namespace

TEST_GROUP(PerfServer) {
  PerfScriptedSide<Client> side;
  Client& client = side.peer();
  PerfAsk good;

  TEST_SETUP() { good.bytes = 64; }
  void serve() {
    must_stop = 0;
    PerfServer(side).serve(must_stop);
  }
};

TEST(PerfServer, AnswersAndCounts) {
  good.measure = PerfMeasure::kBandwidth;
  client.ask(good);
  client.say(kPerfData, std::vector<std::byte>(64));
  client.say(kPerfStop, {});
  serve();
  LONGS_EQUAL(2, client.heard.size());
  LONGS_EQUAL(kPerfReady, client.heard[0].id);
  LONGS_EQUAL(kPerfTally, client.heard[1].id);
  PerfTally tally;
  std::memcpy(&tally, client.heard[1].payload.data(), sizeof tally);
  LONGS_EQUAL(1, tally.received_count);
  LONGS_EQUAL(1, tally.wrong_count);  // the message does not have the number 1
}

TEST(PerfServer, WhatMakesNoSenseIsNotAnswered) {
  PerfAsk asks[5] = {good, good, good, good, good};
  asks[0].bytes = 0;
  asks[1].bytes = kPerfBytesMax + 1;
  asks[2].operation = static_cast<PerfOperation>(3);
  asks[3].operation = static_cast<PerfOperation>(UINT32_MAX);
  asks[4].measure = static_cast<PerfMeasure>(2);
  for (PerfAsk& ask : asks) {
    ask.is_both = 1;
    client.ask(ask);
  }
  client.say(kPerfAsk, std::vector<std::byte>(sizeof(PerfAsk) - 1));
  client.say(kPerfStop, {});
  client.say(kPerfData, std::vector<std::byte>(64));
  serve();
  LONGS_EQUAL(0, client.heard.size());
}

TEST(PerfServer, AnotherVersionIsToldOurs) {
  good.version = kPerfVersion + 1;
  client.ask(good);
  serve();
  LONGS_EQUAL(1, client.heard.size());
  LONGS_EQUAL(kPerfReady, client.heard[0].id);
  LONGS_EQUAL(kPerfVersion, std::to_integer<int>(client.heard[0].payload[0]));
}

TEST(PerfServer, ALoanThatNobodyAskedForGoesBack) {
  for (const AmId id : {kPerfAsk, kPerfData, kPerfStop}) client.say_with_loan(id);
  serve();
  LONGS_EQUAL(3, client.released_count);
  LONGS_EQUAL(0, client.heard.size());
}

TEST(PerfServer, WhatIsExposedInPartIsWithdrawn) {
  client.exposed_count_max = 1;
  client.ask(good);
  serve();
  LONGS_EQUAL(0, client.exposed_count);
  LONGS_EQUAL(0, client.heard.size());
}

TEST(PerfServer, WhatIsInFlightIsNotForgottenByTheNextAsk) {
  good.operation = PerfOperation::kPut;
  good.measure = PerfMeasure::kBandwidth;
  good.is_both = 1;
  for (int i = 0; i < 2; ++i) {
    client.ask(good);
    client.say(kPerfData, std::vector<std::byte>(64));  // a poll between the two
  }
  client.say(kPerfStop, {});
  serve();
  LONGS_EQUAL(kPerfListed, client.put_count);
  for (const Client::Heard& heard : client.heard) LONGS_EQUAL(kPerfReady, heard.id);
}
