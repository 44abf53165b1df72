// Answers that a service owes its clients: those that come in time, and those that are late.
#include "transport/sockets/answer_watch.h"

#include <memory>
#include <string_view>
#include <vector>

#include "apps/testing/session_peer.h"
#include "tests/support/datapath_law.h"
#include "transport/sockets/stream_session_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// "later" is answered by the test, and at "wait" the session waits for the test.
class Debtor final : public StreamSession {
 public:
  Debtor() noexcept : StreamSession(input_, output_, later_) {}
  std::vector<LaterAnswer*> owed;
  void go_on() { resume(0); }

 private:
  StreamStep work(uint64_t) noexcept override {
    const std::string_view line = arrived_line();
    if (line.empty()) return StreamStep::kStarved;
    const bool waits = line == "wait\n";
    take(line.size());
    if (waits) return StreamStep::kWaits;
    owed.push_back(&later());
    return StreamStep::kTaken;
  }
  LaterAnswer later_[4];
  char input_[64];
  char output_[2 * kStepTextBytes];
};

}  // namespace

TEST_GROUP(AnswerWatch) {
  static constexpr uint64_t kLimitNs = 1000;

  uint64_t now_ns = 1000;
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  Counter waiting, late;
  AnswerWatch watch;
  Debtor first, second;

  void watch_for(uint64_t answer_ns_max) {
    CHECK(loop->create({.test_clock_ns = &now_ns}).ok());
    loop->look_at_clock();
    watch.create(*loop, answer_ns_max, waiting, late);
    for (Debtor* each : {&first, &second}) each->set_owner({.watch = &watch});
  }
  void wait_until(uint64_t ns) {
    now_ns = ns;
    loop->look_at_clock();
    loop->own_timers().expire(ns);
  }
  void ask(Debtor & session, std::string_view text) { testing::SessionPeer(session).say(text); }
};

TEST(AnswerWatch, CountsAnswersThatAreLateUntilTheyCome) {
  watch_for(kLimitNs);
  ask(first, "later\n");
  wait_until(1500);
  ask(second, "later\nlater\n");
  LONGS_EQUAL(3, waiting.read());
  second.owed[0]->finish(now_ns);
  wait_until(1999);
  LONGS_EQUAL(0, late.read());
  wait_until(2000);
  LONGS_EQUAL(1, late.read());
  wait_until(2500);
  LONGS_EQUAL(2, late.read());
  LONGS_EQUAL(2, waiting.read());
  first.owed[0]->finish(now_ns);
  LONGS_EQUAL(1, late.read());
  second.owed[1]->finish(now_ns);
  LONGS_EQUAL(0, late.read());
  LONGS_EQUAL(0, waiting.read());
}

// A coroutine waits in this way.
TEST(AnswerWatch, CountsASessionThatWaits) {
  watch_for(kLimitNs);
  ask(first, "wait\n");
  LONGS_EQUAL(1, waiting.read());
  wait_until(2000);
  LONGS_EQUAL(1, late.read());
  first.go_on();
  LONGS_EQUAL(0, late.read());
  LONGS_EQUAL(0, waiting.read());
}

// The service still owes it: its connection is free only then.
TEST(AnswerWatch, CountsAnswersWhosePeerHasGone) {
  watch_for(kLimitNs);
  ask(first, "later\n");
  first.leave();
  wait_until(2000);
  LONGS_EQUAL(1, late.read());
  first.owed[0]->finish(now_ns);
  LONGS_EQUAL(0, late.read());
  first.reset();
}

TEST(AnswerWatch, MayLetAnswersTakeAnyTime) {
  watch_for(0);
  ask(first, "later\n");
  wait_until(uint64_t{1} << 60);
  LONGS_EQUAL(0, late.read());
  first.owed[0]->finish(now_ns);
  LONGS_EQUAL(0, late.read());
  LONGS_EQUAL(0, waiting.read());
}

TEST(AnswerWatch, KeepsTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  watch_for(kLimitNs);
  first.owed.reserve(1);
  testing::SessionPeer peer(first);
  std::string_view text = "later\n";
  LONGS_EQUAL(0, test::breaches_in([&] {
                peer.give(&text);
                first.owed[0]->finish(now_ns);
              }));
  LONGS_EQUAL(0, waiting.read());
}
