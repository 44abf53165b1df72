// Limits of reads and writes on a loop with a test's clock: two budgets, two queues, one change.
#include "transport/loop/request_limit_datapath.h"

#include <memory>
#include <vector>

#include "platform/units.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(RequestLimit) {
  uint64_t clock_ns = 1000 * kNsPerSecond;
  // Allocated separately, because CppUTest's operator new ignores the alignment.
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<LimitCounters> counters = std::make_unique<LimitCounters>();
  std::unique_ptr<RequestLimit> limit;
  std::vector<RateWaiter> requests = std::vector<RateWaiter>(100);
  size_t next = 0;
  std::vector<size_t> went;

  void setup() override {
    EventLoopOptions options;
    options.test_clock_ns = &clock_ns;
    CHECK(loop->create(options).ok());
    loop->timers().reserve_more(RequestLimit::kTimerCount);
    limit = std::make_unique<RequestLimit>(*loop, *counters, &let_go, this);
    went.reserve(requests.size());
  }
  void teardown() override { limit->set({}); }
  static void let_go(void* self, RateWaiter& waiter) noexcept {
    auto& group = *static_cast<TEST_GROUP_CppUTestGroupRequestLimit*>(self);
    group.went.push_back(static_cast<size_t>(&waiter - group.requests.data()));
  }
  bool read(uint64_t bytes = 0) { return limit->reads().try_pass(requests[next++], bytes); }
  bool write(uint64_t bytes = 0) { return limit->writes().try_pass(requests[next++], bytes); }
  void pass(uint64_t ns) {
    clock_ns += ns;
    while (loop->run_round() > 0) {
    }
  }
};

TEST(RequestLimit, AllGoWithoutRates) {
  CHECK(!limit->rates().are_limited());
  for (int i = 0; i < 10; ++i) CHECK(read(4096) && write(4096));
}

TEST(RequestLimit, ReadsAndWritesHaveBudgetsOfTheirOwn) {
  limit->set({.read_rate = 1, .write_rate = 2});
  CHECK(read());
  CHECK(write());
  CHECK(!read());
  CHECK(!write());
  CHECK_EQUAL(1, limit->reads_waiting());
  CHECK_EQUAL(1, limit->writes_waiting());
  pass(500 * kNsPerMs);
  CHECK((went == std::vector<size_t>{3}));
  pass(500 * kNsPerMs);
  CHECK((went == std::vector<size_t>{3, 2}));
  CHECK_EQUAL(1, counters->reads.wait_ns.count());
  CHECK_EQUAL(1, counters->writes.wait_ns.count());
}

TEST(RequestLimit, ShowsItsRates) {
  limit->set({.read_rate = 1,
              .read_rate_bytes = 2,
              .write_rate = 3,
              .write_rate_bytes = 4,
              .burst_ms = 5});
  CHECK_EQUAL(1, counters->reads.operations_per_second.read());
  CHECK_EQUAL(2, counters->reads.bytes_per_second.read());
  CHECK_EQUAL(3, counters->writes.operations_per_second.read());
  CHECK_EQUAL(4, counters->writes.bytes_per_second.read());
  CHECK_EQUAL(5 * kNsPerMs, counters->burst_ns.read());
  CHECK(limit->rates().are_limited());
  CHECK(&limit->loop() == loop.get());
}

TEST(RequestLimit, SomeAreRemovedFromBothQueues) {
  limit->set({.read_rate = 1, .write_rate = 1});
  CHECK(read() && write());
  CHECK(!read());
  CHECK(!read());
  CHECK(!write());
  const RateWaiter* const stays = &requests[3];
  size_t removed = 0;
  limit->remove([stays](const RateWaiter& each) { return &each != stays; },
                [&removed](RateWaiter&) { ++removed; });
  CHECK_EQUAL(2, removed);
  CHECK_EQUAL(1, limit->reads_waiting());
  CHECK_EQUAL(0, limit->writes_waiting());
  limit->set({});
  CHECK((went == std::vector<size_t>{3}));
}
