// The measuring side of `bedplate perf` against bad servers. tests/system/perf_test.py and
// tests/guest/two_guests_test.py test it with good ones.
#include "apps/perf/perf_client.h"

#include <string>

#include "tests/apps/perf/perf_scripted_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// A server that carries out the client's requests, with the exceptions that the test sets.
class Server final : public PerfScriptedPeer {
 public:
  using PerfScriptedPeer::PerfScriptedPeer;

  Outcome outcome = Outcome::kDone;  // of gets
  uint64_t swallowed_count = 0;      // how many messages it loses
  bool is_displaced = false;
  PerfTally tally;

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override {
    if (id == kPerfAsk && !payload.empty()) {
      say(kPerfReady, perf_payload(PerfReady()));
    } else if (id == kPerfStop) {
      if (is_displaced) say(kPerfDisplaced, {});
      say(kPerfTally, perf_payload(tally));
    } else if (id == kPerfData && swallowed_count == 0) {
      ++tally.received_count;
    } else if (id == kPerfData) {
      --swallowed_count;
    }
    return SendStatus::kDone;
  }
  SendStatus start(const RemoteOperation& operation) noexcept override {
    if (operation.kind != OperationKind::kGet) return SendStatus::kRefused;
    if (outcome == Outcome::kDone) perf_fill({operation.local, operation.bytes}, 1);
    later([this, done = operation.done] { done->call(*done, outcome); });
    return SendStatus::kPending;
  }
};

}  // namespace

TEST_GROUP(PerfClient) {
  PerfScriptedSide<Server> side;
  PerfClient client{side};

  // Measures 300 operations. Returns "good", or the problem.
  std::string measure(PerfOperation operation, PerfMeasure measure) {
    CHECK(client.connect("tcp:there").ok());
    PerfTask task;
    task.operation = operation;
    task.measure = measure;
    task.count = 300;
    auto result = client.run(task, 64);
    if (result.ok()) return result.value().count == task.count ? "good" : "not all";
    return std::string(result.error().doing) + ": " + result.error().answer;
  }
};

TEST(PerfClient, AServerThatIsAsItShouldBe) {
  STRCMP_EQUAL("good", measure(PerfOperation::kSend, PerfMeasure::kBandwidth).c_str());
  STRCMP_EQUAL("good", measure(PerfOperation::kGet, PerfMeasure::kLatency).c_str());
}

TEST(PerfClient, OperationsThatFailedAreNotMeasured) {
  side.peer().outcome = Outcome::kUnknown;
  for (const PerfMeasure one : {PerfMeasure::kLatency, PerfMeasure::kBandwidth}) {
    STRCMP_EQUAL("measuring with tcp:there: the connection to it was lost",
                 measure(PerfOperation::kGet, one).c_str());
  }
}

TEST(PerfClient, MessagesThatDidNotComeAreADefect) {
  side.peer().swallowed_count = 2;
  STRCMP_EQUAL("measuring with tcp:there: 300 messages were sent, but 298 arrived",
               measure(PerfOperation::kSend, PerfMeasure::kBandwidth).c_str());
}

TEST(PerfClient, WhoeverIsDisplacedLearnsIt) {
  side.peer().is_displaced = true;
  STRCMP_EQUAL("measuring with tcp:there: it is now measuring with another client",
               measure(PerfOperation::kGet, PerfMeasure::kLatency).c_str());
}
