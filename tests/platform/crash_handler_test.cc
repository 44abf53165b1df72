// Crashes of a process of the tests: the steps that run, and the end of the process.
#include "platform/crash_handler.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/file.h"
#include "platform/known_child.h"
#include "platform/thread_stack.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/signal_line.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr int kSignals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP};

void fault() noexcept { *reinterpret_cast<volatile int*>(uintptr_t{0x1000}) = 1; }

// ---- Steps ----

void say(const Crash& crash) noexcept { test::write_line("step: %d\n", crash.number); }
void say_address(const Crash& crash) noexcept {
  test::write_line("step: at %p\n", crash.info.si_addr);
}
void crash_again(const Crash&) noexcept { fault(); }
void abort_again(const Crash&) noexcept { std::abort(); }
void hang(const Crash&) noexcept {
  for (;;) pause();
}

constexpr CrashStep kSay[] = {{&say}};
constexpr CrashStep kSayAddress[] = {{&say_address}};
constexpr CrashStep kSayOnce[] = {{&stop_other_threads}, {&say}};

void catch_by(std::span<const CrashStep> steps) {
  for (const int number : kSignals) signal(number, SIG_DFL);  // a sanitizer has handlers
  BP_PROBE_CHECK(catch_crashes(steps).ok());
}

// Recurses without end; the compiler must not see that.
[[gnu::noinline]] int fill_stack(int depth) noexcept {
  volatile char frame[4096];
  frame[0] = '\0';
  return depth < 0 ? 0 : fill_stack(depth & 1) + frame[0];
}

size_t count_of(const std::string& text, const std::string& words) {
  size_t count = 0;
  for (size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++count;
  return count;
}

// Checks that the process ended by `signal`, and that its only step ran once.
void check_recorded(const test::Ended& ended, int signal, int line) {
  LONGS_EQUAL_LOCATION(signal, ended.signal, ended.text, __FILE__, line);
  LONGS_EQUAL_LOCATION(1, count_of(ended.text, "step: "), ended.text, __FILE__, line);
}
#define CHECK_RECORDED(signal, probe) check_recorded(test::run_fresh(probe), signal, __LINE__)

}  // namespace

TEST_GROUP(CrashHandler){};

// ---- Each way to crash ----

BP_PROBE(RaisedSignal) {
  catch_by(kSay);
  raise(std::atoi(std::getenv("BP_TEST_SIGNAL")));
}

TEST(CrashHandler, RunsItsStepsAndEndsTheProcessByTheSignal) {
  for (const int number : kSignals) {
    const auto ended =
        test::run_fresh("RaisedSignal", {"BP_TEST_SIGNAL=" + std::to_string(number)});
    check_recorded(ended, number, __LINE__);
    CHECK_TEXT(ended.said("step: " + std::to_string(number) + "\n"), ended.text);
  }
}

BP_PROBE(HandledFault) {
  catch_by(kSayAddress);
  fault();
}
TEST(CrashHandler, KnowsTheAddressOfAFault) {
  const test::Ended ended = test::run_fresh("HandledFault");
  check_recorded(ended, SIGSEGV, __LINE__);
  CHECK_TEXT(ended.said("step: at 0x1000\n"), ended.text);
}

BP_PROBE(HandledAbort) {
  catch_by(kSay);
  std::abort();
}
TEST(CrashHandler, RunsOnceForAnAbort) { CHECK_RECORDED(SIGABRT, "HandledAbort"); }

BP_PROBE(HandledTrap) {
  catch_by(kSay);
  __builtin_trap();
}
TEST(CrashHandler, RunsOnceForATrap) { CHECK_RECORDED(SIGILL, "HandledTrap"); }

BP_PROBE(FullFirstStack) {
  const rlimit limit = {kMiB, RLIM_INFINITY};
  BP_PROBE_CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
  catch_by(kSay);
  fill_stack(0);
}
TEST(CrashHandler, HasRoomWhenTheFirstThreadsStackIsFull) {
  BP_SKIP_UNDER_SANITIZER();
  CHECK_RECORDED(SIGSEGV, "FullFirstStack");
}

BP_PROBE(FullStackOfAThread) {
  catch_by(kSayOnce);
  StackedThread thread;
  BP_PROBE_CHECK(thread
                     .start(
                         "full", [](void*) noexcept { fill_stack(0); }, nullptr)
                     .ok());
  thread.join();
}
TEST(CrashHandler, HasRoomWhenAnotherThreadsStackIsFull) {
  BP_SKIP_UNDER_SANITIZER();
  CHECK_RECORDED(SIGSEGV, "FullStackOfAThread");
}

// ---- Steps that fail ----

BP_PROBE(StepsThatCrash) {
  static constexpr CrashStep kSteps[] = {{&crash_again}, {&abort_again}, {&say}, {&crash_again}};
  catch_by(kSteps);
  raise(SIGFPE);
}
TEST(CrashHandler, GoesOnWithTheNextStepIfOneCrashes) { CHECK_RECORDED(SIGFPE, "StepsThatCrash"); }

BP_PROBE(StepThatHangs) {
  static constexpr CrashStep kSteps[] = {{&hang}, {&say}};
  catch_by(kSteps);
  std::abort();
}
TEST(CrashHandler, GoesOnWithTheNextStepIfOneHangs) { CHECK_RECORDED(SIGABRT, "StepThatHangs"); }

// The record lies in a file that another process has truncated.
BP_PROBE(RecordThatIsCut) {
  static constexpr CrashStep kSteps[] = {{&record_cause}, {&record_calls}, {&say}};
  const Fd file(memfd_create("record", MFD_CLOEXEC));
  BP_PROBE_CHECK(ftruncate(file.number(), sizeof(CrashRecord)) == 0);
  void* mapping =
      mmap(nullptr, sizeof(CrashRecord), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  BP_PROBE_CHECK(mapping != MAP_FAILED);
  keep_crash_in(
      static_cast<CrashRecord*>(mapping), [](void*) noexcept {}, nullptr);
  BP_PROBE_CHECK(ftruncate(file.number(), 0) == 0);
  catch_by(kSteps);
  std::abort();
}
TEST(CrashHandler, LogsACrashWhoseRecordIsLost) {
  const test::Ended ended = test::run_fresh("RecordThatIsCut");
  check_recorded(ended, SIGABRT, __LINE__);
  CHECK_TEXT(ended.said("crash: signal 6 (ABRT) in thread "), ended.text);
  CHECK_TEXT(ended.said("  called from "), ended.text);
}

// ---- Several threads ----

BP_PROBE(ThreadsThatCrashAtOnce) {
  catch_by(kSayOnce);
  std::atomic<int> ready_count{0};
  std::vector<std::thread> threads;
  constexpr int kThreadCount = 8;
  for (int i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([&ready_count] {
      ready_count.fetch_add(1);
      while (ready_count.load() < kThreadCount) std::this_thread::yield();
      std::abort();
    });
  }
  for (std::thread& thread : threads) thread.join();
}
TEST(CrashHandler, RunsOnceForThreadsThatCrashAtOnce) {
  CHECK_RECORDED(SIGABRT, "ThreadsThatCrashAtOnce");
}

namespace {

std::atomic<uint64_t> turns{0};

// Says so once the other thread makes no turns any more.
void say_when_still(const Crash& crash) noexcept {
  for (int i = 0; i < 100; ++i) {
    const uint64_t before = turns.load();
    const timespec pause = {0, 10 * static_cast<long>(kNsPerMs)};
    nanosleep(&pause, nullptr);
    if (turns.load() == before) return say(crash);
  }
}

}  // namespace

BP_PROBE(HandledBesideABusyThread) {
  static constexpr CrashStep kSteps[] = {{&stop_other_threads}, {&say_when_still}};
  catch_by(kSteps);
  std::thread busy([] {
    for (;;) turns.fetch_add(1);
  });
  while (turns.load() == 0) std::this_thread::yield();
  fault();
  busy.join();
}
TEST(CrashHandler, StopsTheOtherThreads) { CHECK_RECORDED(SIGSEGV, "HandledBesideABusyThread"); }

// ---- Children ----

namespace {

// Forks a child that runs `body`, and returns the signal that ended it; 0: none.
template <typename Body>
int end_of_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    is_known_child = true;
    body();
    _exit(0);
  }
  int status = 0;
  BP_PROBE_CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

BP_PROBE(CrashOfAChild) {
  catch_by(kSay);
  BP_PROBE_CHECK(end_of_child([] { fault(); }) == SIGSEGV);
  BP_PROBE_CHECK(end_of_child([] { raise(SIGTRAP); }) == SIGTRAP);
  test::write_line("the children have ended\n");
  raise(SIGBUS);
}
TEST(CrashHandler, RunsNoStepForAForkedChild) {
  const test::Ended ended = test::run_fresh("CrashOfAChild");
  check_recorded(ended, SIGBUS, __LINE__);
  CHECK_TEXT(ended.said("the children have ended\nstep: 7\n"), ended.text);
}

BP_PROBE(CrashOfAChildThatCatches) {
  catch_by(kSay);
  const int signal_number = end_of_child([] {
    BP_PROBE_CHECK(catch_crashes(kSayAddress).ok());
    fault();
  });
  BP_PROBE_CHECK(signal_number == SIGSEGV);
}
TEST(CrashHandler, HandlesTheCrashesOfAChildThatCatchesThem) {
  const test::Ended ended = test::run_fresh("CrashOfAChildThatCatches");
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_EQUAL("step: at 0x1000\n", ended.text);
}

BP_PROBE(SignalOfAnotherProcess) {
  static constexpr CrashStep kSteps[] = {{&record_cause}, {&say}};
  catch_by(kSteps);
  const pid_t child = fork();
  if (child == 0) {
    kill(getppid(), SIGSEGV);
    _exit(0);
  }
  test::write_line("child: %d\n", static_cast<int>(child));
  for (;;) pause();
}
TEST(CrashHandler, NamesTheProcessThatHasSentTheSignal) {
  const test::Ended ended = test::run_fresh("SignalOfAnotherProcess");
  check_recorded(ended, SIGSEGV, __LINE__);
  CHECK_TEXT(ended.said("crash: signal 11 (SEGV) from process "), ended.text);
}

// ---- Handlers of the program ----

BP_PROBE(OwnHandler) {
  for (const int number : kSignals) signal(number, SIG_DFL);
  signal(SIGABRT, [](int) { test::write_line("own\n"); });
  BP_PROBE_CHECK(catch_crashes(kSay).ok());
  raise(SIGABRT);
  BP_PROBE_CHECK(catch_crashes(kSay).ok());  // a second call changes nothing
  raise(SIGABRT);
  raise(SIGSEGV);
}
TEST(CrashHandler, LeavesSignalsThatTheProgramHandles) {
  const test::Ended ended = test::run_fresh("OwnHandler");
  LONGS_EQUAL(SIGSEGV, ended.signal);
  STRCMP_EQUAL("own\nown\nstep: 11\n", ended.text);
}

BP_PROBE(HandlersAsTheHeapAsksFor) {
  catch_by(kSay);
  for (const int number : kSignals) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    BP_PROBE_CHECK((action.sa_flags & SA_NODEFER) == 0 && (action.sa_flags & SA_ONSTACK) != 0);
  }
}
TEST(CrashHandler, KeepsNoIdleHeapFromBeingEmptied) { BP_CHECK_PROBE(HandlersAsTheHeapAsksFor); }
