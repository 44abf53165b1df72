// The watch of the data path's law: it reports each kind of breach with its name and its callers,
// and reports nothing else.
#include "tests/support/datapath_law.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "alloc/pool_heap.h"
#include "platform/clock.h"
#include "platform/file.h"
#include "platform/log.h"
#include "tests/support/blocks.h"
#include "tests/support/patience.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

#undef new  // CppUTest's macro, which calls another operator new

using namespace bedplate;
using namespace bedplate::test;

namespace {

struct alignas(64) Line {
  char bytes[64];
};

}  // namespace

TEST_GROUP(DatapathLaw) {
  std::string told;

  // Returns the number of breaches in `body`. The reports go to `told`.
  template <typename Body>
  uint32_t seen(Body && body, Permit permit = Permit::kWaking) {
    StderrCapture capture;
    const uint32_t count = breaches_in(body, permit);
    told = capture.finish();
    return count;
  }
  // Checks that `body` has `count` breaches, reported with this name and their callers.
  template <typename Body>
  void catches(const char* name, Body&& body, uint32_t count = 1) {
    LONGS_EQUAL_TEXT(count, seen(body), name);
    CHECK_TEXT(told.find("the data path ") != std::string::npos, name);
    CHECK_TEXT(told.find(name) != std::string::npos, told.c_str());
    CHECK_TEXT(told.find("called from ") != std::string::npos, name);
  }
};

TEST(DatapathLaw, CatchesMallocAndItsFamily) {
  BP_SKIP_WITHOUT_LAW();
  void* block = nullptr;
  catches("malloc", [&] { block = allocate(10); });
  catches("realloc", [&] { block = keep(std::realloc(block, 1000)); });
  catches("free", [&] { std::free(block); });
  catches("calloc", [&] { block = keep(std::calloc(3, 5)); });
  std::free(block);
  catches("aligned_alloc", [&] { block = keep(std::aligned_alloc(64, 64)); });
  CHECK(is_aligned(block, 64));
  std::free(block);
  catches("posix_memalign", [&] { (void)posix_memalign(&block, 64, 64); });
  CHECK(is_aligned(block, 64));
  std::free(block);
  // A call inside libc.
  catches("malloc", [&] { block = keep(strdup("text")); });
  STRCMP_EQUAL("text", static_cast<char*>(block));
  std::free(block);
  catches("pool_allocate", [&] { block = pool_allocate(100, 16); });
  catches("pool_free", [&] { pool_free(block); });
}

TEST(DatapathLaw, CatchesNewAndDelete) {
  BP_SKIP_WITHOUT_LAW();
  int* one = nullptr;
  catches("operator new(unsigned long)", [&] { one = static_cast<int*>(keep(new int(7))); });
  LONGS_EQUAL(7, *one);
  catches("operator delete(void*", [&] { delete one; });
  catches("operator new[](unsigned long)", [&] { one = static_cast<int*>(keep(new int[7])); });
  catches("operator delete[](void*", [&] { delete[] one; });
  catches("nothrow", [&] { one = static_cast<int*>(keep(new (std::nothrow) int(8))); });
  delete one;
  Line* line = nullptr;
  catches("std::align_val_t", [&] { line = static_cast<Line*>(keep(new Line())); });
  CHECK(is_aligned(line, 64));
  catches("std::align_val_t", [&] { delete line; });
  catches(
      "operator new", [] { keep(std::string(100, 'x').data()); }, 2);
}

TEST(DatapathLaw, CatchesLocks) {
  BP_SKIP_WITHOUT_LAW();
  std::mutex mutex;
  catches("pthread_mutex_lock", [&] { mutex.lock(); });
  mutex.unlock();
  catches("pthread_mutex_trylock", [&] { (void)(mutex.try_lock() && (mutex.unlock(), true)); });
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  catches("pthread_cond_signal", [&] { pthread_cond_signal(&condition); });
  pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
  catches("pthread_rwlock_rdlock", [&] { pthread_rwlock_rdlock(&shared); });
  pthread_rwlock_unlock(&shared);
  pthread_spinlock_t spinning;
  pthread_spin_init(&spinning, PTHREAD_PROCESS_PRIVATE);
  catches("pthread_spin_lock", [&] { pthread_spin_lock(&spinning); });
  pthread_spin_unlock(&spinning);
}

TEST(DatapathLaw, CatchesTheLogAlsoOfLevelsThatAreNotWritten) {
  BP_SKIP_WITHOUT_LAW();
  catches("bedplate::log_line", [] { BP_LOG_DEBUG("nobody sees number %d", 7); });
  // The trap does not damage the line. The system calls that write the line are breaches, too.
  CHECK(seen([] { BP_LOG_WARNING("%d and %.1f", 7, 2.5); }) > 1);
  CHECK_TEXT(told.find("warning: 7 and 2.5\n") != std::string::npos, told.c_str());
}

TEST(DatapathLaw, CatchesSystemCallsAndLeavesTheirOutcome) {
  BP_SKIP_WITHOUT_LAW();
  pid_t parent = 0;
  catches("makes system call 110 ", [&] { parent = getppid(); });
  LONGS_EQUAL(getppid(), parent);
  catches("(sched_yield)", [] { sched_yield(); });
  int descriptor = 0;
  int error = 0;
  catches("(openat)", [&] {
    descriptor = open("/there/is/none", O_RDONLY | O_CLOEXEC);
    error = errno;
  });
  LONGS_EQUAL(-1, descriptor);
  LONGS_EQUAL(ENOENT, error);
  // Direct system calls, too, as liburing makes them.
  catches("(membarrier)", [] { syscall(SYS_membarrier, 0, 0, 0); });
  // The handler's return is no breach, and does not end the watch.
  catches(
      "(sched_yield)", [] { sched_yield(), sched_yield(), sched_yield(); }, 3);
}

TEST(DatapathLaw, RefusesNewProcesses) {
  BP_SKIP_WITHOUT_LAW();
  pid_t child = 0;
  catches("(clone)", [&] { child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); });
  LONGS_EQUAL(-1, child);
}

TEST(DatapathLaw, LetsWakingThroughAndNothingLikeIt) {
  BP_SKIP_WITHOUT_LAW();
  const Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const Fd other(memfd_create("other", MFD_CLOEXEC));
  const uint64_t one = 1;
  uint32_t word = 0;
  ssize_t wrote = 0;
  LONGS_EQUAL(0, seen([&] { wrote = write(event.number(), &one, sizeof one); }));
  LONGS_EQUAL(sizeof one, wrote);
  LONGS_EQUAL(0, seen([&] { syscall(SYS_futex, &word, FUTEX_WAKE, 1); }));
  LONGS_EQUAL(0, seen([&] { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1); }));
  STRCMP_EQUAL("", told.c_str());
  catches("(write)", [&] { wrote = write(other.number(), &one, sizeof one); });
  catches("(write)", [&] { wrote = write(event.number(), &one, 4); });
  catches("(futex)", [&] { syscall(SYS_futex, &word, FUTEX_WAIT, 1, nullptr); });
  catches("(read)", [&] { wrote = read(event.number(), &word, sizeof word); });
  uint64_t rung = 0;
  LONGS_EQUAL(0, seen([&] { wrote = read(event.number(), &rung, sizeof rung); }));
  LONGS_EQUAL(1, rung);
}

TEST(DatapathLaw, LetsARingThroughWhereThereIsOne) {
  BP_SKIP_WITHOUT_LAW();
  const auto enter = [] { syscall(SYS_io_uring_enter, -1, 0, 0, 0, nullptr, 0); };
  catches("(io_uring_enter)", enter);
  LONGS_EQUAL(0, seen(enter, Permit::kRing));
  LONGS_EQUAL(1, seen([] { sched_yield(); }, Permit::kRing));
  LONGS_EQUAL(1, seen(enter, Permit::kEpoll));
}

TEST(DatapathLaw, LetsThroughWhatEachPermitNamesAndNoMore) {
  BP_SKIP_WITHOUT_LAW();
  const Fd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  CHECK(self.is_open() && event.is_open());
  const auto look_at = [](int fd, int timeout_ms) {
    pollfd wanted = {fd, POLLIN, 0};
    syscall(SYS_poll, &wanted, 1, timeout_ms);
  };
  const std::pair<Permit, std::function<void()>> calls[] = {
      {Permit::kRing, [] { syscall(SYS_io_uring_enter, -1, 0, 0, 0, nullptr, 0); }},
      {Permit::kEpoll, [] { syscall(SYS_epoll_wait, -1, nullptr, 1, 0); }},
      {Permit::kStreams, [] { syscall(SYS_recvmsg, -1, nullptr, MSG_DONTWAIT); }},
      {Permit::kStreams, [] { syscall(SYS_sendmsg, -1, nullptr, MSG_DONTWAIT); }},
      {Permit::kDatagrams, [] { syscall(SYS_recvmmsg, -1, nullptr, 0, MSG_DONTWAIT, nullptr); }},
      {Permit::kDatagrams, [] { syscall(SYS_sendmmsg, -1, nullptr, 0, MSG_DONTWAIT); }},
      {Permit::kDatagramErrors | Permit::kStreams,
       [] { syscall(SYS_recvmsg, -1, nullptr, MSG_ERRQUEUE | MSG_DONTWAIT); }},
      {Permit::kDatagramErrors,
       [] { syscall(SYS_getsockopt, -1, SOL_SOCKET, SO_ERROR, nullptr, nullptr); }},
      {Permit::kWaking, [] { syscall(SYS_getsockopt, -1, SOL_SOCKET, SO_TYPE, nullptr, nullptr); }},
      {Permit::kWatches, [] { syscall(SYS_epoll_ctl, -1, 0, -1, nullptr); }},
      {Permit::kSingleCopy, [] { syscall(SYS_process_vm_readv, 0, nullptr, 0, nullptr, 0, 0); }},
      {Permit::kSingleCopy, [] { syscall(SYS_process_vm_writev, 0, nullptr, 0, nullptr, 0, 0); }},
      {Permit::kSingleCopy, [&] { look_at(self.number(), 0); }},
      {Permit::kWaking, [&] { look_at(self.number(), 1); }},  // this poll waits
      {Permit::kWaking, [&] { look_at(event.number(), 0); }},
  };
  constexpr Permit kEach[] = {Permit::kRing,           Permit::kEpoll,   Permit::kStreams,
                              Permit::kDatagrams,      Permit::kLibrary, Permit::kDriver,
                              Permit::kDatagramErrors, Permit::kWatches, Permit::kSingleCopy};
  for (const auto& [permit, call] : calls) {
    LONGS_EQUAL(1, seen(call));
    for (const Permit each : kEach) {
      const bool is_let = (permit | each) == permit;
      LONGS_EQUAL_TEXT(is_let ? 0 : 1, seen(call, each), told.c_str());
    }
  }
}

TEST(DatapathLaw, ReadsTheClock) {
  BP_SKIP_WITHOUT_LAW();
  uint64_t now_ns = 0;
  LONGS_EQUAL(0, seen([&] { now_ns = monotonic_ns(); }));
  CHECK(now_ns > 0);
}

TEST(DatapathLaw, IsOfOneThread) {
  BP_SKIP_WITHOUT_LAW();
  std::atomic<int> step{0};
  bool has_come = false;
  std::thread other([&] {
    eventually([&] { return step == 1; });
    std::free(allocate(10));
    sched_yield();
    step = 2;
  });
  LONGS_EQUAL(0, seen([&] {
                step = 1;
                while (step != 2) cpu_relax();
                has_come = true;
              }));
  other.join();
  CHECK(has_come);
}

TEST(DatapathLaw, EndsWithItsWatch) {
  BP_SKIP_WITHOUT_LAW();
  StderrCapture capture;
  LawWatch watch;
  sched_yield();
  LONGS_EQUAL(1, watch.end());
  sched_yield();
  std::free(allocate(10));
  LONGS_EQUAL(1, watch.end());
  LONGS_EQUAL(1, breaches_in([] { sched_yield(); }));  // each watch has its own count
}

// A loop with a million breaches does not flood the log.
TEST(DatapathLaw, CountsAllAndTellsSome) {
  BP_SKIP_WITHOUT_LAW();
  LONGS_EQUAL(1000, seen([] {
                for (int i = 0; i < 1000; ++i) sched_yield();
              }));
  size_t lines = 0;
  for (size_t at = 0; (at = told.find("(sched_yield)", at)) != std::string::npos; ++at) ++lines;
  LONGS_EQUAL(5, lines);
}
