// Coroutines: when they begin, wait and end; the results of awaited ones; mistakes. Each way to
// write co_await that the documents show is compiled here, since g++ 12 miscompiles some others.
#include "transport/coroutines/coroutine.h"

#include <coroutine>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/datapath_law.h"
#include "tests/support/death_test.h"
#include "tests/transport/coroutines/coroutine_rig.h"
#include "tests/transport/loop/running_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// Events that coroutines wait for, newest last.
struct Waits {
  explicit Waits(EventLoop& its_loop) : loop(its_loop) {}
  EventLoop& loop;
  std::vector<CoroutineEvent*> events;

  void end_all() {
    while (!events.empty()) {
      CoroutineEvent& event = *events.back();
      events.pop_back();
      event.set();
    }
  }
};

Coroutine<int> later(Waits& waits, int number) {
  CoroutineEvent event(waits.loop);
  waits.events.push_back(&event);
  co_await event;
  co_return number;
}
Coroutine<int> at_once(int number) { co_return number; }
Coroutine<> keep(Waits& waits, int* result) { *result = co_await later(waits, 7); }

// Counts the living objects, and notices one that is copied as bytes.
struct Tracked {
  static inline int alive_count = 0;
  static inline int misplaced_count = 0;
  int number;
  const Tracked* self = this;

  explicit Tracked(int its_number) : number(its_number) { ++alive_count; }
  Tracked(const Tracked& other) : number(other.number) { ++alive_count; }
  Tracked(Tracked&& other) noexcept : number(std::exchange(other.number, -1)) { ++alive_count; }
  Tracked& operator=(const Tracked&) = delete;
  ~Tracked() {
    --alive_count;
    misplaced_count += self == this ? 0 : 1;
  }
};

}  // namespace

TEST_GROUP(Coroutine) {
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  std::unique_ptr<FramesRig> rig;
  std::unique_ptr<Waits> waits;

  void setup() override {
    CHECK(loop->create({}).ok());
    rig = std::make_unique<FramesRig>(*loop);
    waits = std::make_unique<Waits>(*loop);
  }
  void teardown() override {
    CHECK(waits->events.empty());
    CHECK_EQUAL(0, rig->frames.in_use());
    CHECK_EQUAL(0, rig->refused.read());
    CHECK(rig->frames.is_valid());
    waits.reset();
    rig.reset();
    loop.reset();
  }
  template <typename Make>
  void start(Make && make) {
    CHECK(start_coroutine(rig->frames, make));
  }
};

TEST(Coroutine, ThatWaitsForNothingHasEndedWhenItsStartReturns) {
  struct Body {
    static Coroutine<> run(int* result) {
      *result = 1;
      co_return;
    }
  };
  int result = 0;
  start([&] { return Body::run(&result); });
  LONGS_EQUAL(1, result);
  CHECK_EQUAL(0, rig->frames.in_use());
}

TEST(Coroutine, GoesOnWhereItWaited) {
  int result = 0;
  start([&] { return keep(*waits, &result); });
  LONGS_EQUAL(0, result);
  CHECK_EQUAL(2, rig->frames.in_use());
  waits->end_all();
  LONGS_EQUAL(7, result);
}

TEST(Coroutine, SeveralWaitAtOnce) {
  int results[4] = {};
  for (int& result : results) start([&] { return keep(*waits, &result); });
  CHECK_EQUAL(8, rig->frames.in_use());
  std::swap(waits->events[0], waits->events[3]);
  waits->end_all();
  for (const int result : results) LONGS_EQUAL(7, result);
}

// No coroutine runs on the stack of the one that awaits it: else these would take it all.
TEST(Coroutine, AwaitsAnotherAsOftenAsItLikes) {
  struct Body {
    static Coroutine<> run(Waits& waits, int64_t* sum) {
      for (int i = 0; i < 300'000; ++i) *sum += co_await at_once(1);
      *sum += co_await later(waits, 1);
      for (int i = 0; i < 300'000; ++i) *sum += co_await at_once(1);
    }
  };
  int64_t sum = 0;
  start([&] { return Body::run(*waits, &sum); });
  CHECK_EQUAL(300'000, sum);
  waits->end_all();
  CHECK_EQUAL(600'001, sum);
}

TEST(Coroutine, GivesAResultThatIsMovedOnly) {
  struct Body {
    static Coroutine<std::unique_ptr<int>> make(Waits& waits) {
      auto made = std::make_unique<int>(co_await later(waits, 5));
      co_return made;
    }
    static Coroutine<> run(Waits& waits, int* result) {
      const std::unique_ptr<int> made = co_await make(waits);
      *result = *made;
    }
  };
  int result = 0;
  start([&] { return Body::run(*waits, &result); });
  waits->end_all();
  LONGS_EQUAL(5, result);
}

TEST(Coroutine, StartsAnotherThatNobodyAwaits) {
  struct Body {
    static Coroutine<> run(CoroutineFrames& frames, Waits& waits, int* first, int* second) {
      const bool has_started = start_coroutine(frames, [&] { return keep(waits, first); });
      *second = has_started ? co_await later(waits, 3) : -1;
    }
  };
  int first = 0, second = 0;
  start([&] { return Body::run(rig->frames, *waits, &first, &second); });
  LONGS_EQUAL(2, waits->events.size());
  waits->end_all();
  LONGS_EQUAL(7, first);
  LONGS_EQUAL(3, second);
}

TEST(Coroutine, WithoutAFrameDoesNotBegin) {
  int results[16] = {};
  for (int i = 0; i < 8; ++i) start([&] { return keep(*waits, &results[i]); });
  CHECK_FALSE(start_coroutine(rig->frames, [&] { return keep(*waits, &results[8]); }));
  CHECK_EQUAL(1, rig->refused.read());
  rig->refused.set(0);
  waits->end_all();
  start([&] { return keep(*waits, &results[8]); });
  waits->end_all();
  LONGS_EQUAL(7, results[8]);
}

TEST(Coroutine, CanAskWhetherAnotherHasItsFrame) {
  struct Body {
    static Coroutine<> run(bool* is_there) {
      Coroutine<int> other = at_once(1);
      *is_there = other.is_there();
      if (*is_there) *is_there = co_await other == 1;
    }
  };
  bool is_there = false;
  start([&] { return Body::run(&is_there); });
  CHECK(is_there);
  const CoroutineFrames::Scope scope(rig->frames);
  void* taken[15];
  for (void*& each : taken) each = CoroutineFrames::take(8);
  start([&] { return Body::run(&is_there); });
  CHECK_FALSE(is_there);
  rig->refused.set(0);
  for (void* each : taken) CoroutineFrames::give_back(each);
}

TEST(Coroutine, AnEventThatIsSetBeforeIsNotWaitedFor) {
  struct Body {
    static Coroutine<> run(CoroutineEvent& event, int* count) {
      for (;;) {
        co_await event;
        if (++*count == 3) co_return;
      }
    }
  };
  CoroutineEvent event(*loop);
  event.set();
  int count = 0;
  start([&] { return Body::run(event, &count); });
  LONGS_EQUAL(1, count);
  event.set();
  LONGS_EQUAL(2, count);
  event.set();
  LONGS_EQUAL(3, count);
}

TEST(Coroutine, KeepsTheLawOfTheDataPath) {
  BP_SKIP_WITHOUT_LAW();
  int result = 0;
  bool has_started = false;
  waits->events.reserve(4);
  LONGS_EQUAL(0, breaches_in([&] {
                has_started = start_coroutine(rig->frames, [&] { return keep(*waits, &result); });
                waits->end_all();
              }));
  CHECK(has_started);
  LONGS_EQUAL(7, result);
}

// ---- Ways to write co_await ---------------------------------------------------------------------

namespace {

Coroutine<int> value_of(Waits& waits, Tracked tracked) {
  (void)co_await later(waits, 0);
  co_return tracked.number;
}
Coroutine<int> value_behind(Waits& waits, const Tracked& tracked) {
  (void)co_await later(waits, 0);
  co_return tracked.number;
}
Coroutine<Tracked> make_tracked(Waits& waits, int number) {
  (void)co_await later(waits, 0);
  co_return Tracked(number);
}
Coroutine<int> length_of(Waits& waits, std::string_view text) {
  (void)co_await later(waits, 0);
  co_return static_cast<int>(text.size()) * 1000 + text.front();
}
struct Plain {
  int a = 0;
  const char* name = nullptr;
  int b = 0;
};
Coroutine<int> sum_of(Waits& waits, Plain plain) {
  (void)co_await later(waits, 0);
  co_return plain.a + plain.b;
}
template <typename Function>
Coroutine<int> call(Waits& waits, Function function) {
  (void)co_await later(waits, 0);
  co_return function();
}

}  // namespace

// Runs a coroutine with the statements, and ends each of its waits.
#define BP_IN_COROUTINE(...)                         \
  struct Body {                                      \
    static Coroutine<> run(Waits& waits, bool* ok) { \
      __VA_ARGS__;                                   \
      co_return;                                     \
    }                                                \
  };                                                 \
  bool is_ok = false;                                \
  start([&] { return Body::run(*waits, &is_ok); });  \
  waits->end_all();                                  \
  CHECK(is_ok);                                      \
  LONGS_EQUAL(0, Tracked::alive_count);              \
  LONGS_EQUAL(0, Tracked::misplaced_count)

TEST(Coroutine, AwaitsInAnInitialiser) {
  BP_IN_COROUTINE({
    const int number = co_await later(waits, 4);
    *ok = number == 4;
  });
}

TEST(Coroutine, AwaitsInConditions) {
  BP_IN_COROUTINE({
    int number = 0;
    while (co_await later(waits, number) < 3) ++number;
    if (co_await later(waits, 1) == 1 && co_await later(waits, 2) == 2) ++number;
    switch (co_await later(waits, number)) {
      case 4: *ok = true; break;
      default: break;
    }
  });
}

TEST(Coroutine, AwaitsInBothOperandsAndBranches) {
  BP_IN_COROUTINE({
    const int sum = co_await later(waits, 1) + co_await later(waits, 2);
    const int chosen = sum == 3 ? co_await later(waits, 5) : co_await later(waits, 6);
    *ok = chosen == 5;
  });
}

TEST(Coroutine, AwaitsOneThatWasMadeBefore) {
  BP_IN_COROUTINE({
    Coroutine<int> made = later(waits, 8);
    *ok = co_await made == 8;
  });
}

TEST(Coroutine, GivesParametersThatAreTemporaries) {
  BP_IN_COROUTINE({
    const int by_value = co_await value_of(waits, Tracked(3));
    const int by_reference = co_await value_behind(waits, Tracked(4));
    const int text = co_await length_of(waits, std::string(40, 'x'));
    *ok = by_value == 3 && by_reference == 4 && text == 40'000 + 'x';
  });
}

TEST(Coroutine, GivesParametersThatHaveAName) {
  BP_IN_COROUTINE({
    Tracked tracked(5);
    const int copied = co_await value_of(waits, tracked);
    const int moved = co_await value_of(waits, std::move(tracked));
    *ok = copied == 5 && moved == 5;
  });
}

TEST(Coroutine, GetsAResultWithADestructor) {
  BP_IN_COROUTINE({
    const Tracked tracked = co_await make_tracked(waits, 6);
    *ok = tracked.number == 6 && Tracked::alive_count == 1;
  });
}

TEST(Coroutine, GivesAnAggregateOfPlainValues) {
  BP_IN_COROUTINE({
    const int sum = co_await sum_of(waits, {.a = 1, .name = "x", .b = 2});
    *ok = sum == 3;
  });
}

TEST(Coroutine, GivesALambdaThatCapturesReferences) {
  BP_IN_COROUTINE({
    int number = 1;
    const int called = co_await call(waits, [&number] { return ++number; });
    *ok = called == 2 && number == 2;
  });
}

// g++ 12 destroys it twice if it has no name: so it has one.
TEST(Coroutine, GivesANamedLambdaThatCapturesAnObject) {
  BP_IN_COROUTINE({
    Tracked tracked(9);
    const auto function = [tracked] { return tracked.number; };
    const int called = co_await call(waits, function);
    *ok = called == 9 && Tracked::alive_count == 2;
  });
}

TEST(Coroutine, AwaitsWithinTheArgumentsOfAConstructor) {
  BP_IN_COROUTINE({
    const std::string text = std::string("a text that is too long to lie in the object ") +
                             std::to_string(co_await later(waits, 3));
    *ok = text == "a text that is too long to lie in the object 3";
  });
}

// ---- Mistakes -----------------------------------------------------------------------------------

namespace {

// All that a coroutine needs, for a child process, which must not write to the parent's memory.
struct Alone {
  Alone() {
    if (!loop.create({}).ok()) abort();
  }
  EventLoop loop;
  FramesRig rig{loop};
  Waits waits{loop};

  template <typename Make>
  void start(Make&& make) {
    if (!start_coroutine(rig.frames, make)) abort();
  }
};

}  // namespace

TEST(Coroutine, AwaitedTwiceIsAProgrammingError) {
  struct Body {
    static Coroutine<> run() {
      Coroutine<int> other = at_once(1);
      (void)co_await other;
      (void)co_await other;
    }
  };
  BP_CHECK_DIES("broken contract: a coroutine is awaited twice", {
    Alone alone;
    alone.start([] { return Body::run(); });
  });
}

TEST(Coroutine, AwaitedByTwoIsAProgrammingError) {
  struct Body {
    static Coroutine<> run(Coroutine<int>& other) { (void)co_await other; }
  };
  BP_CHECK_DIES("broken contract: a coroutine is awaited twice", {
    Alone alone;
    const CoroutineFrames::Scope scope(alone.rig.frames);
    Coroutine<int> other = later(alone.waits, 1);
    alone.start([&] { return Body::run(other); });
    alone.start([&] { return Body::run(other); });
  });
}

TEST(Coroutine, DestroyedWhileItWaitsIsAProgrammingError) {
  struct Body {
    static Coroutine<> run(Coroutine<int>& other) { (void)co_await other; }
  };
  BP_CHECK_DIES("broken contract: a coroutine is destroyed before its end", {
    Alone alone;
    const CoroutineFrames::Scope scope(alone.rig.frames);
    Coroutine<int> other = later(alone.waits, 1);
    alone.start([&] { return Body::run(other); });
  });
}

TEST(Coroutine, ThatDidNotBeginMayBeDestroyed) {
  const CoroutineFrames::Scope scope(rig->frames);
  { const Coroutine<int> other = at_once(1); }
  CHECK_EQUAL(0, rig->frames.in_use());
}

TEST(Coroutine, AwaitedWithoutAFrameIsAProgrammingError) {
  struct Body {
    static Coroutine<> run(int depth) {
      if (depth > 0) co_await run(depth - 1);
    }
  };
  BP_CHECK_DIES("broken contract: more coroutines are awaited than have frames", {
    Alone alone;
    alone.start([] { return Body::run(16); });
  });
}

TEST(Coroutine, AnEventThatIsSetTwiceIsAProgrammingError) {
  BP_CHECK_DIES("broken contract: an event is set twice", {
    Alone alone;
    CoroutineEvent event(alone.loop);
    event.set();
    event.set();
  });
}

TEST(Coroutine, AnEventThatTwoAwaitIsAProgrammingError) {
  struct Body {
    static Coroutine<> run(CoroutineEvent& event) { co_await event; }
  };
  BP_CHECK_DIES("broken contract: two coroutines await one event", {
    Alone alone;
    CoroutineEvent event(alone.loop);
    alone.start([&] { return Body::run(event); });
    alone.start([&] { return Body::run(event); });
  });
}

namespace {

// A wait whose callback comes from a wrong thread, or too often.
struct Careless : CoroutineWait {
  bool await_ready() const noexcept { return false; }
  template <typename Promise>
  void await_suspend(std::coroutine_handle<Promise> handle) noexcept {
    promise = &begin_wait(handle);
  }
  void await_resume() const noexcept {}
  CoroutinePromise* promise = nullptr;
};
Coroutine<> wait_for(Careless& wait) { co_await wait; }

}  // namespace

TEST(Coroutine, ResumedOnAnotherThreadIsAProgrammingError) {
  RunningLoop running(0);
  FramesRig others(*running.loop);
  Careless wait;
  CoroutineEvent event(*running.loop);
  bool has_started = false;
  running.run_there(
      [&] { has_started = start_coroutine(others.frames, [&] { return wait_for(wait); }); });
  CHECK(has_started);
  check_died(run_forked([&] { wait.promise->wake(); }),
             "CoroutineWait::end_wait was called on another thread", __FILE__, __LINE__);
  check_died(run_forked([&] { event.set(); }), "CoroutineEvent::set was called on another thread",
             __FILE__, __LINE__);
  running.run_there([&] { wait.promise->wake(); });
  CHECK_EQUAL(0, others.frames.in_use());
}

TEST(Coroutine, ResumedWhileItRunsIsAProgrammingError) {
  struct Body {
    static Coroutine<> run(Careless& wait) {
      co_await wait;
      wait.promise->wake();
    }
  };
  BP_CHECK_DIES("broken contract: a coroutine is resumed that does not wait", {
    Alone alone;
    Careless wait;
    alone.start([&] { return Body::run(wait); });
    wait.promise->wake();
  });
}
