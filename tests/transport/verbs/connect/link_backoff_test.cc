#include "transport/verbs/connect/link_backoff.h"

#include "platform/clock.h"
#include "platform/units.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

// Pauses of hours: no test waits for one, and no slow machine lets one pass.
TEST_GROUP(LinkBackoff) {
  static constexpr uint64_t kHour = 3600 * kNsPerSecond;
  static LinkTiming timing() {
    LinkTiming timing;
    timing.backoff_ns_min = kHour;
    timing.backoff_ns_max = 4 * kHour;
    timing.give_up_ns = 30 * kNsPerSecond;
    timing.tell_ns_min = 10;
    timing.tell_ns_max = 40;
    return timing;
  }

  const LinkTiming times = timing();
  LinkBackoff backoff{times};
  uint64_t now = monotonic_ns();

  // The pause before the next try, in whole hours.
  uint64_t delayed_hours() {
    backoff.delay();
    CHECK(backoff.is_valid());
    return (backoff.next_ns(false) - now) / kHour;
  }
  // Dials once more, and the link breaks as soon as it is up.
  void break_at_once() {
    backoff.come_up(now);
    CHECK(!backoff.note_use(false, now));
    CHECK(backoff.go_down());
    backoff.stay_down(true, false, now);
    CHECK(backoff.is_valid());
  }
};

TEST(LinkBackoff, DialsAtOnceWhenAnOutageBegins) {
  CHECK(!backoff.is_down());
  backoff.stay_down(false, false, now);
  CHECK(backoff.is_down());
  CHECK(backoff.is_due(now));
  CHECK(backoff.is_valid());
}

TEST(LinkBackoff, DoublesThePauseUpToItsLimit) {
  backoff.stay_down(false, false, now);
  for (const uint64_t hours : {1, 2, 4, 4}) UNSIGNED_LONGS_EQUAL(hours, delayed_hours());
  CHECK(!backoff.is_due(now));
  backoff.stay_down(false, false, now);  // the outage goes on: no new try at once
  CHECK(!backoff.is_due(now));
}

TEST(LinkBackoff, ALinkThatBreaksAtOnceIsDialedAsSeldomAsOneThatNeverComesUp) {
  backoff.stay_down(false, false, now);
  for (const uint64_t hours : {1, 2, 4, 4}) {
    break_at_once();
    UNSIGNED_LONGS_EQUAL(hours, (backoff.next_ns(false) - now) / kHour);
  }
}

TEST(LinkBackoff, ALinkThatHasWorkedEndsTheOutage) {
  backoff.stay_down(false, false, now);
  delayed_hours();
  backoff.come_up(now);
  CHECK(backoff.note_use(true, now));
  CHECK(!backoff.is_down());
  CHECK(backoff.go_down());
  CHECK(!backoff.go_down());  // it is down already
  backoff.stay_down(true, false, now);
  CHECK(backoff.is_due(now));
  UNSIGNED_LONGS_EQUAL(1, delayed_hours());
}

TEST(LinkBackoff, ALinkThatStaysUpLongEnoughEndsTheOutage) {
  backoff.stay_down(false, false, now);
  backoff.come_up(now);
  UNSIGNED_LONGS_EQUAL(now + times.backoff_ns_max, backoff.next_ns(true));
  CHECK(!backoff.note_use(false, now + times.backoff_ns_max - 1));
  CHECK(backoff.note_use(false, now + times.backoff_ns_max));
}

TEST(LinkBackoff, APeerThatIsCutOffIsDialedWithTheLongestPause) {
  backoff.stay_down(false, true, now);
  UNSIGNED_LONGS_EQUAL(4, (backoff.next_ns(false) - now) / kHour);
}

TEST(LinkBackoff, WaitsWhileThePeerDialsUs) {
  backoff.stay_down(false, false, now);
  backoff.wait_until(now + 5);
  CHECK(!backoff.is_due(now + 4));
  CHECK(backoff.is_due(now + 5));
}

TEST(LinkBackoff, GivesUpAfterItsTimeAndForgetsAnOutageThatNobodyWantsEnded) {
  backoff.stay_down(false, false, now);
  CHECK(!backoff.is_hopeless(now + times.give_up_ns));
  CHECK(backoff.is_hopeless(now + times.give_up_ns + 1));
  backoff.forget();
  CHECK(!backoff.is_down());
}

TEST(LinkBackoff, TellsLessAndLessOften) {
  backoff.stay_down(false, false, now);
  uint64_t at = now;
  for (const uint64_t pause : {10, 20, 40, 40}) {
    CHECK(backoff.try_tell(at));
    CHECK(!backoff.try_tell(at + pause - 1));
    at += pause;
    CHECK(backoff.is_valid());
  }
  backoff.forget();
  backoff.stay_down(false, false, now);
  CHECK(backoff.try_tell(now));  // the next outage is told at once
}
