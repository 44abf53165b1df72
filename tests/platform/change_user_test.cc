// Giving up root is permanent. The tests run in child processes.
#include "platform/change_user.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <unistd.h>

#include "platform/capabilities.h"
#include "platform/thread_stack.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kNetBind = uint64_t{1} << 10;  // CAP_NET_BIND_SERVICE
constexpr uint64_t kSetUid = uint64_t{1} << 7;
constexpr const char* kNeedsRoot = "needs root that may become another user";
constexpr const char* kHasThread = "a sanitizer has a thread of its own, which stays root";

std::atomic<bool> may_end{false};
void wait_for_end(void*) noexcept { may_end.wait(false); }

// Runs `steps` while another thread exists.
int beside_a_thread(int (*steps)()) {
  StackedThread thread;
  if (!thread.start("beside", &wait_for_end, nullptr).ok()) return 90;
  const int outcome = steps();
  may_end = true;
  may_end.notify_all();
  thread.join();
  return outcome;
}

std::vector<Error> found_as_nobody(const Look& look, uint64_t kept = 0) {
  std::vector<Error> problems;
  CHECK(look_as_user(find_user("nobody").take(), kept, look, &problems).ok());
  return problems;
}

bool can_change() {
  if (getuid() != 0) return false;
  std::vector<Error> problems;
  auto looked = look_as_user(
      find_user("nobody").take(), 0, [](auto*) {}, &problems);
  return looked.ok() && problems.empty();
}

}  // namespace

TEST_GROUP(ChangeUser){};

TEST(ChangeUser, ThreadsInheritTheUserAndWhatItKeeps) {
  if (test::kIsSanitized) BP_SKIP(kHasThread);
  if (!can_change()) BP_SKIP(kNeedsRoot);
  LONGS_EQUAL(0, test::exit_code_of([] {
                if (!become_user(find_user("nobody").take(), kNetBind).ok()) return 1;
                if (geteuid() == 0 || setuid(0) == 0 || setgid(0) == 0) return 2;
                return beside_a_thread([] {
                  if (list_threads().take().size() != 2) return 3;
                  if (!check_capabilities(kNetBind).ok()) return 4;
                  return check_capabilities(0).ok() ? 5 : 0;
                });
              }));
}

TEST(ChangeUser, AThreadThatWasThereBeforeIsFound) {
  if (!can_change()) BP_SKIP(kNeedsRoot);
  LONGS_EQUAL(0, test::exit_code_of([] {
                return beside_a_thread([] {
                  const auto became = become_user(find_user("nobody").take(), 0);
                  if (became.ok()) return 1;
                  return std::string_view(became.error().answer) ==
                                 "not all of its ids are those of nobody"
                             ? 0
                             : 2;
                });
              }));
}

TEST(ChangeUser, ACapabilityToBecomeRootIsFound) {
  if (test::kIsSanitized) BP_SKIP(kHasThread);
  if (!can_change()) BP_SKIP(kNeedsRoot);
  const auto problems = found_as_nobody([](auto*) {}, kSetUid);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("it can", problems[0].answer);
}

TEST(ChangeUser, WhatTheUserCannotIsToldByAnotherProcess) {
  if (!can_change()) BP_SKIP(kNeedsRoot);
  const pid_t process = getpid();
  const auto problems = found_as_nobody([process](std::vector<Error>* found) {
    if (getpid() != process && geteuid() != 0) found->push_back(Error{}.set_answer("the first"));
    for (int i = 0; i < 200; ++i) found->push_back(Error{}.set_answer("one more"));
  });
  LONGS_EQUAL(201, problems.size());  // more than a pipe holds
  STRCMP_EQUAL("the first", problems[0].answer);
  LONGS_EQUAL(0, geteuid());
}

TEST(ChangeUser, ALookThatEndsItsProcessIsAnError) {
  if (!can_change()) BP_SKIP(kNeedsRoot);
  std::vector<Error> problems;
  const auto looked = look_as_user(
      find_user("nobody").take(), 0, [](auto*) { _exit(3); }, &problems);
  CHECK_FALSE(looked.ok());
  STRCMP_EQUAL("checking this machine as nobody", looked.error().doing);
  STRCMP_EQUAL("the checking process ended by code 3", looked.error().answer);
}

TEST(ChangeUser, ALookThatCrashesIsAnErrorThatNamesTheSignal) {
  if (!can_change()) BP_SKIP(kNeedsRoot);
  std::vector<Error> problems;
  const auto looked = look_as_user(
      find_user("nobody").take(), 0, [](auto*) { raise(SIGKILL); }, &problems);
  CHECK_FALSE(looked.ok());
  STRCMP_EQUAL("the checking process ended by signal 9", looked.error().answer);
}
