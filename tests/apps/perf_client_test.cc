// What the side of `bedplate perf` that measures makes of a server that is not as it should be.
// The two as they should be: tests/system/perf_test.py, tests/guest/two_guests_test.py.
#include "apps/perf/perf_client.h"

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Does what is asked for, in the polls after it, but for what the test wants otherwise.
class Server final : public Provider, public Endpoint {
 public:
  explicit Server(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  Outcome outcome = Outcome::kDone;  // of gets
  uint64_t swallowed_count = 0;      // messages that do not come
  bool is_displaced = false;
  PerfTally tally;

  const char* name() const noexcept override { return "scripted"; }
  Result<Endpoint*> connect(const PeerAddress&) override { return this; }
  uint32_t poll(uint32_t) noexcept override {
    const auto due = std::exchange(due_, {});
    for (const auto& one : due) one();
    return static_cast<uint32_t>(due.size());
  }
  void release(const Loan&) noexcept override {}
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void sleep(uint64_t) noexcept override {}
  bool can_sleep() const noexcept override { return true; }

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override {
    if (id == kPerfAsk && !payload.empty()) {
      answer(kPerfReady, std::as_bytes(std::span(&ready_, 1)));
    } else if (id == kPerfStop) {
      if (is_displaced) answer(kPerfDisplaced, {});
      answer(kPerfTally, std::as_bytes(std::span(&tally, 1)));
    } else if (id == kPerfData && swallowed_count == 0) {
      ++tally.received_count;
    } else if (id == kPerfData) {
      --swallowed_count;
    }
    return SendStatus::kDone;
  }
  SendStatus get(std::span<std::byte> into, const RemoteMemory&,
                 Completion* done) noexcept override {
    if (outcome == Outcome::kDone) perf_fill(into, 1);
    due_.push_back([this, done] { done->call(*done, outcome); });
    return SendStatus::kPending;
  }
  Result<RemoteMemory> expose(std::span<std::byte> memory) override {
    return RemoteMemory{reinterpret_cast<uintptr_t>(memory.data()), memory.size(), 0, 0};
  }
  const EndpointLimits& limits() const noexcept override { return kLimits; }
  const char* provider_name() const noexcept override { return "scripted"; }
  // Nobody asks for these.
  SendStatus am_send_loan(AmId, std::span<const std::byte>, std::span<std::byte>,
                          Completion*) noexcept override {
    return SendStatus::kRefused;
  }
  SendStatus put(std::span<const std::byte>, const RemoteMemory&, Completion*) noexcept override {
    return SendStatus::kRefused;
  }
  SendStatus fetch_add(const RemoteMemory&, uint64_t, uint64_t*, Completion*) noexcept override {
    return SendStatus::kRefused;
  }
  SendStatus compare_swap(const RemoteMemory&, uint64_t, uint64_t, uint64_t*,
                          Completion*) noexcept override {
    return SendStatus::kRefused;
  }
  SendStatus flush(Completion*) noexcept override { return SendStatus::kRefused; }
  void withdraw(const RemoteMemory&) noexcept override {}

 private:
  void answer(AmId id, std::span<const std::byte> payload) {
    due_.push_back([this, id, text = std::vector<std::byte>(payload.begin(), payload.end())] {
      dispatcher_.deliver({*this, id, text, {}});
    });
  }

  static constexpr EndpointLimits kLimits = {4096, 56, 32};
  Dispatcher& dispatcher_;
  PerfReady ready_;
  std::deque<std::function<void()>> due_;
};

class Side final : public PerfSide {
 public:
  Side() : server_(messenger_.dispatcher()), memory_(2 * kPerfBytesMax) {
    messenger_.add_provider(server_);
    set_area(memory_);
  }
  Messenger& messenger() noexcept override { return messenger_; }
  Result<Endpoint*> connect() override { return &server_; }
  Server& server() { return server_; }

 private:
  Messenger messenger_;
  Server server_;
  std::vector<std::byte> memory_;
};

}  // namespace

TEST_GROUP(PerfClient) {
  Side side;
  PerfClient client{side};

  // What the client says of 300 of them.
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
  side.server().outcome = Outcome::kUnknown;
  for (const PerfMeasure one : {PerfMeasure::kLatency, PerfMeasure::kBandwidth}) {
    STRCMP_EQUAL("measuring with tcp:there: the connection to it was lost",
                 measure(PerfOperation::kGet, one).c_str());
  }
}

TEST(PerfClient, MessagesThatDidNotComeAreADefect) {
  side.server().swallowed_count = 2;
  STRCMP_EQUAL("measuring with tcp:there: 300 messages were sent, and 298 came",
               measure(PerfOperation::kSend, PerfMeasure::kBandwidth).c_str());
}

TEST(PerfClient, WhoeverIsDisplacedLearnsIt) {
  side.server().is_displaced = true;
  STRCMP_EQUAL("measuring with tcp:there: it measures with another client now",
               measure(PerfOperation::kGet, PerfMeasure::kLatency).c_str());
}
