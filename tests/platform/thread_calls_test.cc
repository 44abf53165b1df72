// The log's lines about the call stacks of threads.
#include "platform/thread_calls.h"

#include <atomic>
#include <csignal>
#include <ctime>
#include <string>

#include <cstdlib>

#include <liburing.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/file.h"
#include "platform/thread_stack.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::atomic<bool> is_ready{false};
std::atomic<bool> must_end{false};

void spin(void*) noexcept {
  is_ready = true;
  const timespec pause = {0, 100'000};  // a sanitizer delivers signals in blocking calls
  while (!must_end) nanosleep(&pause, nullptr);
}

void spin_deaf(void*) noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  spin(nullptr);
}

// Ends once the signal that asks it is pending, and does not answer.
void end_when_asked(void*) noexcept {
  sigset_t all, asked;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  is_ready = true;
  do {
    sigpending(&asked);
  } while (sigismember(&asked, SIGRTMAX - 3) == 0 && !must_end);
}

std::atomic<bool> has_begun{false};

// The first system call of the thread's answer does not return until must_end.
void spin_on_and_on(void*) noexcept {
  const bool is_set = test::answer_calls(SYS_prctl, [](const uint64_t*) {
    has_begun = true;
    while (!must_end) cpu_relax();
    return 0L;
  });
  if (is_set) spin(nullptr);
}

#ifdef BP_THREAD_SANITIZER
constexpr bool kHasDeafThread = true;
#else
constexpr bool kHasDeafThread = false;
#endif

}  // namespace

#define SKIP_WITH_A_DEAF_THREAD() \
  if (kHasDeafThread) BP_SKIP("this build has a thread of its own that keeps signals from itself")

TEST_GROUP(ThreadCalls) {
  StackedThread thread;
  ThreadCallsLogged logged;

  void begin(const char* name, void (*function)(void*) noexcept) {
    is_ready = must_end = false;
    CHECK(thread.start(name, function, nullptr).ok());
    while (!is_ready) cpu_relax();
  }
  void teardown() override {
    must_end = true;
    thread.join();
  }
  std::string lines(uint64_t patience_ns) {
    test::StderrCapture capture;
    auto asked = log_thread_calls(patience_ns);
    const std::string text = capture.finish();
    CHECK(asked.ok());
    logged = asked.value();
    return text;
  }
};

TEST(ThreadCalls, EachSaysWhereItIs) {
  SKIP_WITH_A_DEAF_THREAD();
  begin("spinner", &spin);
  for (int i = 0; i < 2; ++i) {
    const std::string text = lines(test::kPatienceNs);
    CHECK(logged.threads >= 2);
    LONGS_EQUAL(0, logged.silent);
    const size_t at = text.find("bedplate: error: thread spinner (");
    CHECK_TEXT(at != text.npos, text.c_str());
    const std::string behind = text.substr(text.find('\n', at) + 1);
    STRNCMP_EQUAL("bedplate: error:   called from ", behind.c_str(), 31);
  }
}

TEST(ThreadCalls, OneThatDoesNotAnswerIsSaidToBeSilent) {
  begin("deaf", &spin_deaf);
  const std::string text = lines(kNsPerMs);
  CHECK(logged.silent >= 1);
  STRCMP_CONTAINS(": no answer\n", text.c_str());
  CHECK(text.find("thread deaf") == text.npos);
}

// The same happens to a thread that was just joined: the kernel lists it for a while longer.
TEST(ThreadCalls, OneThatEndsWhileItIsAskedIsNoThread) {
  SKIP_WITH_A_DEAF_THREAD();
  begin("ending", &end_when_asked);
  const std::string text = lines(test::kPatienceNs);
  LONGS_EQUAL(0, logged.silent);
  CHECK_TEXT(text.find(": no answer\n") == text.npos, text.c_str());
}

BP_PROBE(an_answer_that_does_not_end) {
  StackedThread thread;
  BP_PROBE_CHECK(thread.start("endless", &spin_on_and_on, nullptr).ok());
  BP_PROBE_CHECK(test::eventually([] { return is_ready.load(); }));
  test::StderrCapture capture;
  // A thread that has not begun to answer is logged as silent; the next try waits longer.
  for (uint64_t patience_ns = 10 * kNsPerMs; !has_begun; patience_ns *= 2) {
    auto asked = log_thread_calls(patience_ns);
    BP_PROBE_CHECK(asked.ok() && asked.value().silent >= 1);
  }
  const std::string text = capture.finish();
  BP_PROBE_CHECK(text.find(": began to answer, but has not finished\n") != text.npos);
  must_end = true;
  thread.join();
}

TEST(ThreadCalls, AnAnswerThatDoesNotEndIsGivenUp) {
  SKIP_WITH_A_DEAF_THREAD();  // such a build also delays the trap
  BP_CHECK_PROBE(an_answer_that_does_not_end);
}

// The kernel's worker thread blocks all signals, and exists for a while after its work.
TEST(ThreadCalls, WorkersOfIoUringAreTheKernels) {
  SKIP_WITH_A_DEAF_THREAD();
  io_uring ring;
  if (const int refused = io_uring_queue_init(2, &ring, 0); refused < 0) {
    BP_SKIP("this machine has no io_uring");
  }
  char path[] = "/tmp/bedplate-calls-XXXXXX";
  const Fd file(mkstemp(path));
  unlink(path);
  io_uring_sqe* entry = io_uring_get_sqe(&ring);
  io_uring_prep_fsync(entry, file.number(), 0);
  entry->flags |= IOSQE_ASYNC;
  LONGS_EQUAL(1, io_uring_submit_and_wait(&ring, 1));
  lines(test::kPatienceNs);
  LONGS_EQUAL(0, logged.silent);
  io_uring_queue_exit(&ring);
}

TEST(ThreadCalls, ASignalOfSomebodyElseIsLeftAlone) {
  struct sigaction before = {};
  struct sigaction foreign = {};
  foreign.sa_handler = [](int) {};
  sigaction(SIGRTMAX - 3, &foreign, &before);
  const auto asked = log_thread_calls(test::kPatienceNs);
  sigaction(SIGRTMAX - 3, &before, nullptr);
  CHECK_FALSE(asked.ok());
  STRCMP_CONTAINS("a handler that is not Bedplate's", asked.error().answer);
}
