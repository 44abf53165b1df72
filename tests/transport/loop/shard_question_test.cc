// Questions between shards: each is answered once, on the shard that asked, and never from within
// the call that asks.
#include "transport/loop/shard_question_datapath.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/datapath_law.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/transport/loop/running_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint32_t kQuestionsMax = 8;

// Doubles a number on the asked shard.
struct Doubling : ShardQuestion {
  Doubling() noexcept : ShardQuestion(&Doubling::compute) {}
  static void compute(ShardQuestion& self) noexcept {
    auto& its = static_cast<Doubling&>(self);
    its.asked_thread = std::this_thread::get_id();
    its.asked_owner = current_heap_owner();
    its.result = 2 * its.number;
    if (its.answers_at_once) its.answer();
  }
  static void take(ShardQuestion& self) noexcept {
    auto& its = static_cast<Doubling&>(self);
    its.answered_thread = std::this_thread::get_id();
    its.was_in_flight = its.is_in_flight();
    its.answered_owner = current_heap_owner();
    its.answer_count.fetch_add(1);
  }

  uint64_t number = 0;
  uint64_t result = 0;
  bool answers_at_once = true;
  bool was_in_flight = true;  // within take()
  HeapOwner asked_owner = {}, answered_owner = {};
  std::thread::id asked_thread, answered_thread;
  std::atomic<uint32_t> answer_count{0};
};

}  // namespace

TEST_GROUP(ShardQuestion) {
  std::unique_ptr<RunningLoop> here = std::make_unique<RunningLoop>(0);
  std::unique_ptr<RunningLoop> there = std::make_unique<RunningLoop>(0);
  ShardAsker asker;

  void setup() override { asker.create(*here->loop, kQuestionsMax); }
  void teardown() override {
    here.reset();
    there.reset();
  }

  void ask(EventLoop & to, Doubling & question) {
    here->run_there([&] { asker.ask(to, question, &Doubling::take); });
  }
  void wait_for_arrival(const Doubling& question) {
    CHECK(eventually([&] {
      bool has_arrived = false;
      there->run_there([&] { has_arrived = question.asked_thread != std::thread::id(); });
      return has_arrived;
    }));
  }
  bool is_answered(const Doubling& question, uint32_t count) {
    return eventually([&] { return question.answer_count.load() == count; });
  }
};

TEST(ShardQuestion, IsAnsweredOnTheShardThatAsked) {
  Doubling question;
  for (uint32_t i = 1; i <= 100; ++i) {
    question.number = i;
    ask(*there->loop, question);
    CHECK(is_answered(question, i));
    CHECK_EQUAL(2 * i, question.result);
  }
  CHECK(question.asked_thread == there->thread.get_id());
  CHECK(question.answered_thread == here->thread.get_id());
  CHECK_FALSE(question.was_in_flight);
  CHECK_EQUAL(0, asker.in_flight());
}

TEST(ShardQuestion, OfAShardToItselfIsNotAnsweredWithinTheCall) {
  Doubling question;
  question.number = 21;
  uint32_t count_within = 1;
  bool was_in_flight = false;
  here->run_there([&] {
    asker.ask(*here->loop, question, &Doubling::take);
    count_within = question.answer_count.load();
    was_in_flight = question.is_in_flight() && asker.in_flight() == 1;
  });
  CHECK(is_answered(question, 1));
  LONGS_EQUAL(0, count_within);
  CHECK(was_in_flight);
  CHECK_EQUAL(42, question.result);
  CHECK(question.asked_thread == here->thread.get_id());
}

TEST(ShardQuestion, MayBeAnsweredLater) {
  Doubling question;
  question.answers_at_once = false;
  ask(*there->loop, question);
  wait_for_arrival(question);
  CHECK_EQUAL(1, asker.in_flight());
  LONGS_EQUAL(0, question.answer_count.load());
  there->run_there([&] { question.answer(); });
  CHECK(is_answered(question, 1));
  CHECK_EQUAL(0, asker.in_flight());
}

TEST(ShardQuestion, IsChargedToTheOwnerThatAsked) {
  const HeapOwner ours = heap_owner("heap:asker").take();
  const HeapOwner others = heap_owner("heap:other").take();
  Doubling question;
  question.answers_at_once = false;
  here->run_there([&] {
    const HeapOwnerScope scope(ours);
    asker.ask(*there->loop, question, &Doubling::take);
  });
  wait_for_arrival(question);
  there->run_there([&] {
    const HeapOwnerScope scope(others);
    question.answer();
  });
  CHECK(is_answered(question, 1));
  LONGS_EQUAL(ours.index, question.asked_owner.index);
  LONGS_EQUAL(ours.index, question.answered_owner.index);
}

// All that are planned are in flight at once, to both shards.
TEST(ShardQuestion, AsManyAsPlannedAreInFlightAtOnce) {
  std::vector<std::unique_ptr<Doubling>> questions;
  for (uint32_t i = 0; i < kQuestionsMax; ++i) {
    questions.push_back(std::make_unique<Doubling>());
    questions.back()->number = i;
  }
  for (uint32_t round = 1; round <= 200; ++round) {
    here->run_there([&] {
      for (auto& each : questions) {
        asker.ask(each->number % 2 == 0 ? *there->loop : *here->loop, *each, &Doubling::take);
      }
    });
    for (auto& each : questions) CHECK(is_answered(*each, round));
    for (auto& each : questions) CHECK_EQUAL(2 * each->number, each->result);
  }
  CHECK_EQUAL(0, asker.in_flight());
}

// The asked shard has stopped: the question stays in flight, and nothing is called. Its memory is
// the service's, which outlives both shards.
TEST(ShardQuestion, StaysInFlightIfTheAskedShardHasStopped) {
  Doubling question, other;
  there->loop->stop();
  there->thread.join();
  there->thread = std::thread([] {});  // for the end of the test
  ask(*there->loop, question);
  ask(*here->loop, other);
  CHECK(is_answered(other, 1));
  LONGS_EQUAL(0, question.answer_count.load());
  CHECK_EQUAL(1, asker.in_flight());
}

TEST(ShardQuestion, StaysInFlightIfTheAskingShardHasStopped) {
  Doubling question;
  question.answers_at_once = false;
  ask(*there->loop, question);
  here->loop->stop();
  here->thread.join();
  here->thread = std::thread([] {});
  wait_for_arrival(question);
  there->run_there([&] { question.answer(); });
  LONGS_EQUAL(0, question.answer_count.load());
  CHECK_EQUAL(1, asker.in_flight());
}

TEST(ShardQuestion, KeepsTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  Doubling question;
  uint32_t breaches = 1;
  for (uint32_t i = 1; i <= 3; ++i) {
    here->run_there([&] {
      breaches = breaches_in([&] { asker.ask(*there->loop, question, &Doubling::take); });
    });
    CHECK(is_answered(question, i));
    LONGS_EQUAL(0, breaches);
  }
}

// ---- Mistakes -----------------------------------------------------------------------------------

namespace {

// An asker whose loop no thread runs, so that any thread may ask.
struct IdleAsker {
  IdleAsker() {
    if (!loop.create({}).ok()) abort();
    asker.create(loop, 1);
  }
  EventLoop loop;
  ShardAsker asker;
  Doubling question;
};

}  // namespace

TEST(ShardQuestion, BeyondThePlanIsAProgrammingError) {
  BP_CHECK_DIES(
      "broken contract: more questions are in flight than a service plans on this shard, 1", {
        IdleAsker idle;
        Doubling second;
        idle.asker.ask(idle.loop, idle.question, &Doubling::take);
        idle.asker.ask(idle.loop, second, &Doubling::take);
      });
}

TEST(ShardQuestion, ThatIsInFlightCannotBeAskedAgain) {
  BP_CHECK_DIES("broken contract: a question is asked that is not answered yet", {
    IdleAsker idle;
    idle.asker.ask(idle.loop, idle.question, &Doubling::take);
    idle.asker.ask(idle.loop, idle.question, &Doubling::take);
  });
}

TEST(ShardQuestion, IsNotAnsweredBeforeItHasArrived) {
  BP_CHECK_DIES("broken contract: a question is answered twice, or before it has arrived", {
    IdleAsker idle;
    idle.question.answer();
  });
}

TEST(ShardQuestion, AnsweredTwiceIsAProgrammingError) {
  BP_CHECK_DIES("broken contract: a question is answered twice, or before it has arrived", {
    IdleAsker idle;
    idle.question.asked = [](ShardQuestion& self) noexcept {
      self.answer();
      self.answer();
    };
    idle.asker.ask(idle.loop, idle.question, &Doubling::take);
    PlainSleeper sleeper(idle.loop);
    idle.loop.set_sleeper(sleeper);
    idle.loop.run();
  });
}

TEST(ShardQuestion, AnsweredOnAnotherShardIsAProgrammingError) {
  static Doubling question;
  question.answers_at_once = false;
  ask(*there->loop, question);
  wait_for_arrival(question);
  const Ended end = run_forked([] { question.answer(); });
  check_died(end, "ShardQuestion::answer was called on another thread", __FILE__, __LINE__);
  there->run_there([&] { question.answer(); });
  CHECK(eventually([&] { return question.answer_count.load() > 0; }));
}

TEST(ShardQuestion, AskedOnAnotherShardIsAProgrammingError) {
  Doubling question;
  const Ended end = run_forked([&] { asker.ask(*there->loop, question, &Doubling::take); });
  check_died(end, "ShardAsker::ask was called on another thread", __FILE__, __LINE__);
}
