// Drills: their names, and the effect of each on its process.
#include "apps/init/drill.h"

#include <csignal>
#include <optional>
#include <string>

#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

// Runs the drill on a loop, and lets its timer expire.
test::Ended drilled(Drill drill) {
  return test::run_forked([drill] {
    EventLoop loop;
    loop.timers().reserve_more(1);
    begin_drill(drill, loop);
    loop.timers().expire(UINT64_MAX - 1);
  });
}

}  // namespace

TEST_GROUP(Drill){};

TEST(Drill, EachIsKnownByItsName) {
  CHECK(parse_drill(std::nullopt).value() == Drill::kNone);
  CHECK(parse_drill("hang").value() == Drill::kHang);
  CHECK(parse_drill("hang-deaf").value() == Drill::kHangDeaf);
  CHECK(parse_drill("overflow").value() == Drill::kOverflow);
  STRCMP_CONTAINS("there is no drill \"fire\"; write assertion, boot, fault",
                  text_of(parse_drill("fire").error()).c_str());
}

TEST(Drill, WithoutOneNothingHappens) {
  const test::Ended ended = drilled(Drill::kNone);
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_EQUAL("", ended.text);
  drill_boot(Drill::kFault);
  drill_control(Drill::kFault);
}

TEST(Drill, EndsItsProcessInItsWay) {
  BP_SKIP_UNDER_SANITIZER();  // a sanitizer handles faults itself
  const test::Ended asserted = drilled(Drill::kAssertion);
  CHECK(asserted.said("a drill begins, as requested") && asserted.said("this is a drill"));
  LONGS_EQUAL(SIGABRT, asserted.signal);
  LONGS_EQUAL(SIGTERM, drilled(Drill::kTerminate).signal);
  LONGS_EQUAL(SIGSEGV, drilled(Drill::kFault).signal);
  LONGS_EQUAL(SIGSEGV, drilled(Drill::kOverflow).signal);
}

TEST(Drill, ChildrenAreWaitedFor) {
  const test::Ended ended = test::run_forked([] {
    signal(SIGCHLD, SIG_IGN);  // as the first process has it
    EventLoop loop;
    loop.timers().reserve_more(1);
    begin_drill(Drill::kChildren, loop);
    loop.timers().expire(UINT64_MAX - 1);
  });
  CHECK(ended.said("drill: 8 children and their children have ended; none is left"));
}
