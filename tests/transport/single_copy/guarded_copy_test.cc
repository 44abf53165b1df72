// A copy that stops where a page is missing.
#include "transport/single_copy/guarded_copy_datapath.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pinned_pool/memory_error.h"
#include "platform/crash_handler.h"
#include "platform/file.h"
#include "tests/support/death_test.h"
#include "tests/support/signal_line.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

static constexpr uint64_t kPageBytes = 4096;

TEST_GROUP(GuardedCopy) {
  char* pages = nullptr;  // two pages, with nothing mapped behind them
  char local[3 * kPageBytes] = {};

  void setup() override {
    CHECK(install_copy_guard().ok());
    pages = map(-1, MAP_PRIVATE | MAP_ANONYMOUS);
    munmap(pages + 2 * kPageBytes, kPageBytes);
    std::memset(pages, 'p', 2 * kPageBytes);
  }
  void teardown() override { munmap(pages, 2 * kPageBytes); }

  char* map(int fd, int flags) {
    void* taken = mmap(nullptr, 3 * kPageBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    CHECK(taken != MAP_FAILED);
    return static_cast<char*>(taken);
  }
};

TEST(GuardedCopy, CopiesAllThatIsThere) {
  CHECK_EQUAL(0u, guarded_copy(local, pages, 0));
  CHECK_EQUAL(2 * kPageBytes - 1, guarded_copy(local, pages + 1, 2 * kPageBytes - 1));
  MEMCMP_EQUAL(pages, local, 2 * kPageBytes - 1);
  CHECK_EQUAL(0, local[2 * kPageBytes - 1]);
}

TEST(GuardedCopy, StopsAtTheByteThatIsMissingInTheSource) {
  CHECK_EQUAL(10u, guarded_copy(local, pages + 2 * kPageBytes - 10, 20));
  CHECK_EQUAL('p', local[9]);
  CHECK_EQUAL(0, local[10]);
  CHECK_EQUAL(0u, guarded_copy(local, nullptr, 20));
}

TEST(GuardedCopy, StopsAtTheByteThatIsMissingInTheDestination) {
  CHECK_EQUAL(10u, guarded_copy(pages + 2 * kPageBytes - 10, local, 20));
  mprotect(pages + kPageBytes, kPageBytes, PROT_READ);
  CHECK_EQUAL(kPageBytes, guarded_copy(pages, local, 2 * kPageBytes));
  CHECK_EQUAL(0, pages[kPageBytes - 1]);
  CHECK_EQUAL('p', pages[kPageBytes]);
}

TEST(GuardedCopy, StopsBehindTheEndOfAFile) {
  const Fd file(memfd_create("guarded", MFD_CLOEXEC));
  CHECK(ftruncate(file.number(), kPageBytes) == 0);
  char* const mapped = map(file.number(), MAP_SHARED);
  CHECK_EQUAL(kPageBytes, guarded_copy(local, mapped, 2 * kPageBytes));  // the fault was SIGBUS
  munmap(mapped, 3 * kPageBytes);
}

TEST(GuardedCopy, LeavesOtherFaultsToTheHandlersThatWereThere) {
  const auto ended = test::run_forked([&] {
    signal(SIGSEGV, SIG_DFL);  // removes a sanitizer's handler
    *static_cast<volatile char*>(pages + 2 * kPageBytes) = 1;
  });
  CHECK_EQUAL(SIGSEGV, ended.signal);
}

BP_PROBE(guard_hands_on_faults) {
  struct sigaction action = {};
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    _exit(info->si_addr == reinterpret_cast<void*>(16) ? 0 : 5);
  };
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  BP_PROBE_CHECK(install_copy_guard().ok());
  char byte = 0;
  BP_PROBE_CHECK(guarded_copy(&byte, reinterpret_cast<void*>(16), 1) == 0);
  volatile uintptr_t nowhere = 16;  // hides the address from the compiler
  *reinterpret_cast<volatile char*>(nowhere) = 1;
  BP_PROBE_CHECK(!"the handler ended the process");
}

TEST(GuardedCopy, HandsOnAFaultWithItsAddress) { BP_CHECK_PROBE(guard_hands_on_faults); }

// The appliance has both handlers. The handler that names the owner of a page is installed later,
// so it is called first.
BP_PROBE(guard_is_reached_through_another_handler) {
  const Fd file(memfd_create("guarded", MFD_CLOEXEC));
  BP_PROBE_CHECK(ftruncate(file.number(), kPageBytes) == 0);
  void* const mapped = mmap(nullptr, 2 * kPageBytes, PROT_READ, MAP_SHARED, file.number(), 0);
  BP_PROBE_CHECK(mapped != MAP_FAILED && install_copy_guard().ok());
  report_memory_errors();
  static char into[2 * kPageBytes];
  for (int i = 0; i < 3; ++i) {
    BP_PROBE_CHECK(guarded_copy(into, mapped, 2 * kPageBytes) == kPageBytes);
  }
}

TEST(GuardedCopy, IsReachedThroughAHandlerThatCameLater) {
  BP_CHECK_PROBE(guard_is_reached_through_another_handler);
}

BP_PROBE(guard_hands_on_signals) {
  struct sigaction action = {};
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    _exit(info->si_code == SI_USER && info->si_pid == getpid() ? 0 : 5);
  };
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
  BP_PROBE_CHECK(install_copy_guard().ok());
  kill(getpid(), SIGBUS);
  BP_PROBE_CHECK(!"the handler ended the process");
}

TEST(GuardedCopy, HandsOnASignalThatWasSent) { BP_CHECK_PROBE(guard_hands_on_signals); }

BP_PROBE(guard_outlasts_signals) {
  struct sigaction action = {};
  static int count = 0;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    if (info->si_code != SI_USER) _exit(5);
    ++count;
  };
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  signal(SIGBUS, SIG_IGN);
  BP_PROBE_CHECK(install_copy_guard().ok());
  char byte = 0;
  for (int i = 1; i <= 3; ++i) {
    BP_PROBE_CHECK(kill(getpid(), SIGSEGV) == 0 && kill(getpid(), SIGBUS) == 0);
    BP_PROBE_CHECK(count == i);
    BP_PROBE_CHECK(guarded_copy(&byte, reinterpret_cast<void*>(16), 1) == 0);
  }
}

TEST(GuardedCopy, StaysGuardedAfterASignalThatWasSent) { BP_CHECK_PROBE(guard_outlasts_signals); }

// An appliance handles crashes, names the owners of pages, and guards copies.
static void say_crash(const Crash& crash) noexcept { test::write_line("step: %d\n", crash.number); }
static constexpr CrashStep kSayCrash[] = {{&say_crash}};

BP_PROBE(guard_beside_the_handler_of_crashes) {
  const Fd file(memfd_create("guarded", MFD_CLOEXEC));
  BP_PROBE_CHECK(ftruncate(file.number(), kPageBytes) == 0);
  void* const mapped = mmap(nullptr, 2 * kPageBytes, PROT_READ, MAP_SHARED, file.number(), 0);
  for (const int number : {SIGSEGV, SIGBUS}) signal(number, SIG_DFL);  // removes a sanitizer's
  BP_PROBE_CHECK(mapped != MAP_FAILED && catch_crashes(kSayCrash).ok());
  BP_PROBE_CHECK(install_copy_guard().ok());
  report_memory_errors();
  static char into[2 * kPageBytes];
  for (int i = 0; i < 2; ++i) {
    BP_PROBE_CHECK(guarded_copy(into, mapped, 2 * kPageBytes) == kPageBytes);
    BP_PROBE_CHECK(guarded_copy(into, reinterpret_cast<void*>(16), 1) == 0);
  }
  const bool is_bus_error = std::getenv("BP_TEST_BUS_ERROR") != nullptr;
  const auto* page = static_cast<const volatile char*>(mapped);
  if (is_bus_error) into[0] = page[kPageBytes];
  volatile uintptr_t nowhere = 16;  // hides the address from the compiler
  *reinterpret_cast<volatile char*>(nowhere) = 1;
}

TEST(GuardedCopy, LeavesCrashesToTheirHandler) {
  const test::Ended fault = test::run_fresh("guard_beside_the_handler_of_crashes");
  LONGS_EQUAL(SIGSEGV, fault.signal);
  STRCMP_EQUAL("step: 11\n", fault.text);
  const test::Ended bus_error =
      test::run_fresh("guard_beside_the_handler_of_crashes", {"BP_TEST_BUS_ERROR=1"});
  LONGS_EQUAL(SIGBUS, bus_error.signal);
  STRCMP_EQUAL("step: 7\n", bus_error.text);
}
