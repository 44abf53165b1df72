#include "platform/forbidden_calls.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <sys/syscall.h>

#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr unsigned long kBad = ~0UL;
constexpr CallTrial kTrials[] = {{"accept4", SYS_accept4, {kBad}},
                                 {"clone3", SYS_clone3, {}, true},
                                 {"recvmmsg", SYS_recvmmsg, {kBad}}};

// The error of try_calls() in a process in which seccomp forbids the calls `forbidden`.
Error said_without(std::initializer_list<long> forbidden, int error_number) {
  Error said;
  int ends[2];
  CHECK(pipe(ends) == 0);
  const test::Ended ended = test::run_forked([&] {
    for (const long number : forbidden) {
      BP_PROBE_CHECK(test::forbid_call(static_cast<uint32_t>(number), error_number));
    }
    const auto tried = try_calls(kTrials);
    const Error error = tried.ok() ? Error() : tried.error();
    BP_PROBE_CHECK(write(ends[1], &error, sizeof error) == sizeof error);
  });
  LONGS_EQUAL(0, ended.exit_code);
  LONGS_EQUAL(sizeof said, read(ends[0], static_cast<void*>(&said), sizeof said));
  close(ends[0]);
  close(ends[1]);
  return said;
}

}  // namespace

TEST_GROUP(ForbiddenCalls){};

TEST(ForbiddenCalls, WithoutAProfileAllOfThemAreAllowed) { CHECK(try_calls(kTrials).ok()); }

TEST(ForbiddenCalls, EachOfThemIsNamedWithTheCure) {
  const Error one = said_without({SYS_accept4}, EPERM);
  STRCMP_EQUAL("trying the system calls that it needs", one.doing);
  STRCMP_EQUAL(strerrordesc_np(EPERM), one.answer);
  STRCMP_CONTAINS("a seccomp profile forbids accept4: allow it", one.cure);
  const Error two = said_without({SYS_accept4, SYS_recvmmsg}, ENOSYS);
  STRCMP_EQUAL(strerrordesc_np(ENOSYS), two.answer);
  STRCMP_CONTAINS("forbids accept4, recvmmsg: allow", two.cure);
}

TEST(ForbiddenCalls, OneThatMayBeMissingIsNamedForAnotherAnswerAlone) {
  STRCMP_EQUAL("", said_without({SYS_clone3}, ENOSYS).doing);
  STRCMP_CONTAINS("clone3", said_without({SYS_clone3}, EPERM).cure);
}

// The cure has no partial names: a name that does not fit is left out.
TEST(ForbiddenCalls, HoweverManyTheyAreTheCureIsWhole) {
  std::vector<CallTrial> trials(60, CallTrial{"a_long_name_of_a_call", 100'000, {}});
  const auto tried = try_calls(trials);
  CHECK_FALSE(tried.ok());
  STRCMP_CONTAINS("a_long_name_of_a_call: allow it, in SystemCallFilter= of the unit",
                  tried.error().cure);
  STRCMP_CONTAINS("of the container", tried.error().cure);
}
