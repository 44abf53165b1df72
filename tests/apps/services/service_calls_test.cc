// Exceptions that nothing catches (service_test.cc has the calls that catch them), and calls that
// keep the main thread.
#include "apps/services/service_calls.h"

#include <csignal>
#include <exception>
#include <functional>
#include <stdexcept>

#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Calls `throws` where its exception ends the process. The compiler does not see that.
void call_where_nothing_catches(const std::function<void()>& throws) noexcept { throws(); }

}  // namespace

TEST_GROUP(ServiceCalls){};

BP_PROBE(UncaughtException) {
  name_uncaught_exceptions();
  call_where_nothing_catches([] { throw std::runtime_error("no luck"); });
}

TEST(ServiceCalls, AnUncaughtExceptionEndsTheProcessWithItsText) {
  const test::Ended ended = test::run_fresh("UncaughtException");
  LONGS_EQUAL(SIGABRT, ended.signal);
  STRCMP_CONTAINS("bedplate: an uncaught exception: no luck; this is a defect: code on a shard "
                  "must catch its own exceptions\n",
                  ended.text);
}

BP_PROBE(UncaughtExceptionWithoutAText) {
  name_uncaught_exceptions();
  call_where_nothing_catches([] { throw 7; });
}

TEST(ServiceCalls, AnUncaughtExceptionWithoutATextIsNamedByItsType) {
  const test::Ended ended = test::run_fresh("UncaughtExceptionWithoutAText");
  LONGS_EQUAL(SIGABRT, ended.signal);
  STRCMP_CONTAINS("bedplate: an uncaught exception: i; ", ended.text);
}

BP_PROBE(OwnTerminateHandler) {
  std::set_terminate([] { _exit(42); });
  name_uncaught_exceptions();
  call_where_nothing_catches([] { throw std::runtime_error("no luck"); });
}

TEST(ServiceCalls, AProgramsOwnTerminateHandlerStays) {
  LONGS_EQUAL(42, test::run_fresh("OwnTerminateHandler").exit_code);
}

// ---- The main thread ----------------------------------------------------------------------------

namespace {

struct Slow final : Service {
  const char* name() const noexcept override { return "slow"; }
};

}  // namespace

TEST(ServiceCalls, OneThatKeepsTheMainThreadIsNamed) {
  Slow slow;
  test::StderrCapture capture;
  judge_main_thread_time(slow, "tick()", kMainThreadNsMax);
  STRCMP_EQUAL("", capture.text().c_str());
  judge_main_thread_time(slow, "is_drained()", 1'234'567'890);
  STRCMP_CONTAINS(
      "warning: slow: is_drained() took 1234 ms of the main thread: signals, drains and "
      "the supervisor waited for it",
      capture.finish().c_str());
}

TEST(ServiceCalls, OnTheMainThreadGiveTheirResult) {
  Slow slow;
  const HeapOwner own = heap_owner_of(slow);
  LONGS_EQUAL(own.index,
              in_service_on_main_thread(slow, "tick()", [] { return current_heap_owner().index; }));
}
