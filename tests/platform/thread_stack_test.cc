#include "platform/thread_stack.h"

#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// One mapping in /proc/self/smaps.
struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  char rights[8] = {};
  uint64_t locked_bytes = 0;
};

// Finds the mapping that contains `address`, and the mapping that is listed before it.
void find_mappings(const void* address, Mapping* found, Mapping* before) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::FILE* file = std::fopen("/proc/self/smaps", "r");
  char line[512];
  Mapping previous;
  Mapping current;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    Mapping next;
    uint64_t kib = 0;
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &next.begin, &next.end, next.rights) ==
        3) {
      if (current.begin <= wanted && wanted < current.end) break;
      previous = current;
      current = next;
    } else if (std::sscanf(line, "Locked: %" SCNu64 " kB", &kib) == 1) {
      current.locked_bytes = kib * kKiB;
    }
  }
  std::fclose(file);
  *found = current;
  *before = previous;
}

struct Seen {
  std::atomic<int> run_count{0};
  Mapping stack;
  Mapping guard;
};

void look_around(void* context) noexcept {
  auto& seen = *static_cast<Seen*>(context);
  find_mappings(__builtin_frame_address(0), &seen.stack, &seen.guard);
  seen.run_count.fetch_add(1);
}

struct NameSeen {
  std::atomic<bool> was_started{false};
  char name[16] = {};
};

// The name of a thread that was started with `name`. It is set when start() returns.
std::string name_of(const char* name) {
  NameSeen seen;
  StackedThread thread;
  const Result<void> started = thread.start(
      name,
      [](void* context) noexcept {
        auto& self = *static_cast<NameSeen*>(context);
        while (!self.was_started.load()) std::this_thread::yield();
        pthread_getname_np(pthread_self(), self.name, sizeof self.name);
      },
      &seen);
  CHECK(started.ok());
  seen.was_started.store(true);
  thread.join();
  return seen.name;
}

// Recurses until the stack is full. The fault then needs an alternate stack for its handler.
[[gnu::noinline]] int fill_stack(int depth) noexcept {
  volatile char frame[4096];
  frame[0] = '\0';
  return depth < 0 ? 0 : fill_stack(depth & 1) + frame[0];
}

}  // namespace

TEST_GROUP(StackedThread) { Seen seen; };

TEST(StackedThread, RunsItsFunctionOnce) {
  StackedThread thread;
  CHECK(thread.start("once", &look_around, &seen).ok());
  thread.join();
  LONGS_EQUAL(1, seen.run_count.load());
  thread.join();  // a second join does nothing
}

TEST(StackedThread, HasItsName) { STRCMP_EQUAL("shard-main", name_of("shard-main").c_str()); }

TEST(StackedThread, OverlongNameIsCutOff) {
  STRCMP_EQUAL("a-name-of-twent", name_of("a-name-of-twenty-one-").c_str());
}

TEST(StackedThread, JoinsAtTheEndOfItsLife) {
  {
    StackedThread thread;
    CHECK(thread.start("short", &look_around, &seen).ok());
  }
  LONGS_EQUAL(1, seen.run_count.load());
}

TEST(StackedThread, StackIsPrivateLockedAndFaultedIn) {
  BP_SKIP_WITHOUT_MLOCK();
  StackedThread thread;
  CHECK(thread.start("stack", &look_around, &seen).ok());
  thread.join();
  STRCMP_EQUAL("rw-p", seen.stack.rights);
  CHECK(seen.stack.end - seen.stack.begin == kThreadStackBytes);
  // "Locked" counts only present pages, so all pages are present.
  CHECK(seen.stack.locked_bytes == kThreadStackBytes);
}

TEST(StackedThread, PageBelowTheStackIsAGuard) {
  StackedThread thread;
  CHECK(thread.start("guard", &look_around, &seen).ok());
  thread.join();
  CHECK(seen.guard.end == seen.stack.begin);
  STRCMP_EQUAL("---p", seen.guard.rights);
}

TEST(StackedThread, GivesItsStackBack) {
  {
    StackedThread thread;
    CHECK(thread.start("gone", &look_around, &seen).ok());
  }
  Mapping now;
  Mapping before;
  find_mappings(reinterpret_cast<void*>(seen.stack.begin), &now, &before);
  CHECK_FALSE(now.begin == seen.stack.begin && now.end == seen.stack.end &&
              now.locked_bytes == kThreadStackBytes);
}

// A thread that joined itself would free the stack on which it runs.
TEST(StackedThread, WaitingForItselfIsAProgrammingError) {
  BP_CHECK_DIES("pthread_join(thread_, nullptr) == 0", {
    static StackedThread itself;
    static std::atomic<bool> is_there{false};
    (void)itself.start(
        "itself",
        [](void*) noexcept {
          while (!is_there.load()) sched_yield();
          itself.join();
        },
        nullptr);
    is_there.store(true);
    for (;;) pause();
  });
}

TEST(StackedThread, StartingTwiceIsAProgrammingError) {
  StackedThread thread;
  CHECK(thread.start("twice", &look_around, &seen).ok());
  BP_CHECK_DIES("assertion failed: !is_running_", (void)thread.start("twice", &look_around, &seen));
}

TEST(StackedThread, RefusesAStackThatMayNotBeLocked) {
  BP_SKIP_WITHOUT_MLOCK();
  if (getuid() != 0) BP_SKIP("only root can lower its rights for the test");
  const test::Ended ended = test::run_forked([] {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_MEMLOCK, &none);
    if (setuid(65534) != 0) _exit(1);
    StackedThread thread;
    const Result<void> result = thread.start("unlocked", &look_around, nullptr);
    if (result.ok()) _exit(2);
    char text[1024];
    format_error(result.error(), text, sizeof text);
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  });
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_CONTAINS("locking the stack of thread unlocked: ", ended.text);
  STRCMP_CONTAINS("; raise the limit: ulimit -l unlimited", ended.text);
}

// On one core, a new thread seldom runs before its creator waits.
BP_PROBE(LeftBeforeItBegins) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  BP_PROBE_CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
  constexpr int kThreadCount = 20;
  std::atomic<int> run_count{0};
  for (int i = 0; i < kThreadCount; ++i) {
    alignas(StackedThread) std::byte memory[sizeof(StackedThread)];
    StackedThread* thread = std::construct_at(reinterpret_cast<StackedThread*>(memory));
    BP_PROBE_CHECK(
        thread
            ->start(
                "left",
                [](void* count) noexcept { static_cast<std::atomic<int>*>(count)->fetch_add(1); },
                &run_count)
            .ok());
    thread->join_or_leave(0);
    std::destroy_at(thread);
    std::memset(memory, 0, sizeof memory);  // as later use of this stack would do
  }
  BP_PROBE_CHECK(test::eventually([&] { return run_count.load() == kThreadCount; }));
}
TEST(StackedThread, ThatIsLeftRunsWithoutItsObject) { BP_CHECK_PROBE(LeftBeforeItBegins); }

BP_PROBE(FullStack) {
  struct sigaction action = {};
  action.sa_handler = [](int) { _exit(42); };
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  StackedThread thread;
  BP_PROBE_CHECK(thread
                     .start(
                         "full", [](void*) noexcept { fill_stack(0); }, nullptr)
                     .ok());
  thread.join();
}
TEST(StackedThread, HandlersHaveRoomWhenTheStackIsFull) {
  LONGS_EQUAL(42, test::run_fresh("FullStack").exit_code);
}
