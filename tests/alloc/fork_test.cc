// Fork (alloc/child_heap.h, alloc/child_libc.h): the child sees the parent's memory and leaves
// it alone; the parent notices nothing.
//
// The trials run in fresh processes, since they use many threads and a heap under load.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include <malloc.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/confined_heap.h"
#include "alloc/fork_mark.h"
#include "pinned_pool/layout.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::allocate;
using bedplate::test::is_aligned;
using bedplate::test::keep;

namespace {

constexpr int kForks = 200;
constexpr int kAllocationsOfSome = 1'000'000;  // for every twentieth child
constexpr int kAllocationsOfMost = 2'000;

bool is_pattern(const void* block, size_t bytes, unsigned char byte) {
  const auto* at = static_cast<const unsigned char*>(block);
  return std::all_of(at, at + bytes, [byte](unsigned char found) { return found == byte; });
}

// The child's exit code, or -1.
int code_of(pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A child's use of the heap. Returns 0, or the number of the check that failed.
int use_the_heap(const char* of_parent, int allocation_count) {
  if (std::strcmp(of_parent, "the parent's") != 0) return 10;
  constexpr size_t kHeld = 64;
  static unsigned char* held[kHeld];
  static size_t held_bytes[kHeld];
  unsigned random = static_cast<unsigned>(getpid());
  for (int i = 0; i < allocation_count; ++i) {
    random = random * 1664525 + 1013904223;
    const size_t at = (random >> 8) % kHeld;
    const auto byte = static_cast<unsigned char>(at);
    if (held[at] != nullptr && !is_pattern(held[at], held_bytes[at], byte)) return 11;
    std::free(held[at]);
    held_bytes[at] = (random >> 16) % (i % 100 == 0 ? 600'000 : 700);
    held[at] = static_cast<unsigned char*>(allocate(held_bytes[at]));
    if (held[at] == nullptr || in_pool_range(held[at])) return 12;
    std::memset(held[at], byte, held_bytes[at]);
  }
  std::map<int, std::string> container;
  for (int i = 0; i < 100; ++i) container[i] = std::string(static_cast<size_t>(i), 'x');
  if (in_pool_range(&container[50]) || container[99].size() != 99) return 13;
  return 0;
}

// A thread that allocates, verifies and frees blocks until stop(). is_good() is false if a block
// was missing, outside the pool or changed.
class Load {
 public:
  Load() : thread_([this] { run(); }) {}
  ~Load() { thread_.join(); }
  void stop() { must_stop_ = true; }
  bool is_good() const { return is_good_; }
  long rounds() const { return rounds_; }

 private:
  void run() {
    constexpr size_t kHeld = 500;
    std::vector<std::pair<unsigned char*, size_t>> held(kHeld);
    unsigned random = 1;
    while (!must_stop_) {
      for (size_t i = 0; i < kHeld; ++i) {
        auto& [block, bytes] = held[i];
        const auto byte = static_cast<unsigned char>(i * 7 + 1);
        if (block != nullptr && !is_pattern(block, bytes, byte)) is_good_ = false;
        std::free(block);
        random = random * 1664525 + 1013904223;
        bytes = 1 + (random >> 12) % 3000;
        block = static_cast<unsigned char*>(allocate(bytes));
        if (block == nullptr || !in_pool_range(block)) is_good_ = false;
        std::memset(block, byte, bytes);
      }
      ++rounds_;
    }
    for (auto& [block, bytes] : held) std::free(block);
  }

  std::atomic<bool> must_stop_{false};
  std::atomic<bool> is_good_{true};
  std::atomic<long> rounds_{0};
  std::thread thread_;
};

}  // namespace

TEST_GROUP(Fork){};

BP_PROBE(ChildHasAHeapOfItsOwn) {
  auto* block = static_cast<char*>(allocate(100));
  std::strcpy(block, "the parent's");
  void* again = keep(block);
  // The bytes before a block of the parent may look like the header of a child's block.
  auto* first = static_cast<unsigned char*>(allocate(112));
  auto* second = static_cast<unsigned char*>(allocate(112));
  const bool are_neighbours = second == first + 112;  // debug builds have padding between them
  const uint64_t header[] = {128, 16};
  if (are_neighbours) std::memcpy(first + 96, header, sizeof header);
  volatile size_t too_much = SIZE_MAX;
  BP_PROBE_CHECK(owns_heap() && !is_forked_child());
  const pid_t child = fork();
  if (child == 0) {
    if (!is_forked_child()) _exit(1);
    if (std::strcmp(block, "the parent's") != 0 || malloc_usable_size(block) < 100) _exit(2);
    std::free(second);
    // keep() hides these from the compiler, which assumes that reallocated or freed memory is gone.
    char* copied = static_cast<char*>(std::realloc(keep(block), 5000));
    if (copied == nullptr || in_pool_range(copied)) _exit(3);
    if (std::strcmp(copied, static_cast<char*>(again)) != 0) _exit(3);
    copied[0] = 'T';
    std::free(keep(again));
    ::operator delete(keep(again));
    void* zeroed = keep(std::calloc(10, 1000));
    if (!is_pattern(zeroed, 10'000, 0)) _exit(4);
    std::memset(zeroed, 1, 10'000);
    std::free(zeroed);
    if (!is_pattern(keep(std::calloc(1, 9'000)), 9'000, 0)) _exit(5);
    for (size_t alignment = 1; alignment <= kMiB; alignment *= 2) {
      void* aligned = keep(memalign(alignment, 100));
      if (!is_aligned(aligned, std::max<size_t>(alignment, 8))) _exit(6);
      std::memset(aligned, 1, malloc_usable_size(aligned));
      std::free(aligned);
    }
    errno = 0;
    if (allocate(too_much - 10) != nullptr || errno != ENOMEM) _exit(7);
    errno = 0;
    if (keep(std::calloc(too_much / 2, 3)) != nullptr || errno != ENOMEM) _exit(8);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(use_the_heap(static_cast<char*>(again), 1000));
    if (code_of(grandchild) != 0) _exit(9);
    std::exit(use_the_heap(static_cast<char*>(again), 1000));
  }
  BP_PROBE_CHECK(code_of(child) == 0);
  BP_PROBE_CHECK(std::strcmp(static_cast<char*>(again), "the parent's") == 0);
  BP_PROBE_CHECK(!are_neighbours || std::memcmp(first + 96, header, sizeof header) == 0);
  BP_PROBE_CHECK(in_pool_range(allocate(100)));
  std::free(again);
}
TEST(Fork, ChildHasAHeapOfItsOwn) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ChildHasAHeapOfItsOwn);
}

// No atfork handler runs for the child of a raw clone.
BP_PROBE(EveryKindOfForkIsNoticed) {
  const auto child = static_cast<pid_t>(syscall(SYS_clone, 17 /* SIGCHLD */, 0, 0, 0, 0));
  if (child == 0) _exit(is_forked_child() && !in_pool_range(allocate(10)) ? 0 : 1);
  BP_PROBE_CHECK(code_of(child) == 0);
}
TEST(Fork, EveryKindOfForkIsNoticed) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(EveryKindOfForkIsNoticed);
}

// The bytes of the pool that the heap holds, in all its arenas.
static uint64_t held_bytes_of_heap() {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) bytes += heap_arena_use(i).used_bytes;
  return bytes;
}

// The end of a child, or of a thread in it, must not clean up the parent's heap: memory that the
// parent's threads have freed but not given back yet stays in their heaps.
BP_PROBE(ChildEndsQuietly) {
  std::thread([] {
    // Pages of many block sizes, with all blocks free: a thread that ends gives such pages back.
    std::vector<void*> blocks;
    for (size_t bytes = 16; bytes < 60'000; bytes += bytes / 4) {
      blocks.push_back(std::memset(allocate(bytes), 1, bytes));
    }
    for (void* block : blocks) std::free(block);
    void* block = std::memset(allocate(300), 3, 300);
    const uint64_t held_before = held_bytes_of_heap();
    const pid_t child = fork();
    if (child == 0) {
      std::thread([] { std::free(allocate(100)); }).join();
      pthread_exit(nullptr);  // the last thread: the process ends with 0
    }
    BP_PROBE_CHECK(code_of(child) == 0);
    BP_PROBE_CHECK(held_bytes_of_heap() == held_before);
    const pid_t other = fork();
    if (other == 0) std::exit(0);
    BP_PROBE_CHECK(code_of(other) == 0);
    BP_PROBE_CHECK(held_bytes_of_heap() == held_before);
    BP_PROBE_CHECK(is_pattern(block, 300, 3));
    std::free(block);
  }).join();
}
TEST(Fork, ChildEndsQuietly) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ChildEndsQuietly);
}

// Forks from the main thread and from others, while the heap is busy.
BP_PROBE(ParentsTrafficIsWholeThroughoutManyForks) {
  auto* of_parent = static_cast<char*>(allocate(64));
  std::strcpy(of_parent, "the parent's");
  Load loads[2];
  std::atomic<int> next{0};
  std::atomic<int> failure{0};
  const auto fork_some = [&] {
    for (int i; (i = next.fetch_add(1)) < kForks;) {
      // The arguments of exec lie in the pool, and are built before the fork.
      const std::string said = "parent " + std::to_string(i);
      char* arguments[] = {
          strdup("sh"),         strdup("-c"),         strdup("test \"$0\" = \"$1\""),
          strdup(said.c_str()), strdup(said.c_str()), nullptr};
      const pid_t child = fork();
      if (child == 0) {
        const int outcome =
            use_the_heap(of_parent, i % 20 == 0 ? kAllocationsOfSome : kAllocationsOfMost);
        if (outcome != 0) _exit(outcome);
        if (i % 4 == 0) execv("/bin/sh", arguments);
        if (i % 4 == 1) std::exit(0);
        _exit(i % 4 == 0 ? 1 : 0);
      }
      if (const int code = child < 0 ? 99 : code_of(child); code != 0) failure = code;
      for (char* argument : arguments) std::free(argument);
    }
  };
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) others.emplace_back(fork_some);
  fork_some();
  for (std::thread& other : others) other.join();
  for (Load& load : loads) load.stop();
  std::fprintf(stderr, "failure %d, load %d %d\n", failure.load(), loads[0].is_good(),
               loads[1].is_good());
  BP_PROBE_CHECK(failure == 0);
  BP_PROBE_CHECK(loads[0].is_good() && loads[1].is_good());
  BP_PROBE_CHECK(loads[0].rounds() > 0 && loads[1].rounds() > 0);
}
TEST(Fork, ParentsTrafficIsWholeThroughoutManyForks) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ParentsTrafficIsWholeThroughoutManyForks, "BEDPLATE_BOOT_BYTES=64 MiB");
}

// libc's streams lie in the pool, too. If a child unlocked them, the parent's threads would see it;
// if a child walked their list, it would see memory that those threads free.
BP_PROBE(ParentsStreamsAreItsOwn) {
  std::atomic<bool> must_stop{false};
  std::atomic<long> opened{0};
  std::atomic<long> locked{0};
  std::FILE* shared = std::fopen("/dev/null", "w");
  BP_PROBE_CHECK(in_pool_range(shared));
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!must_stop) {
      std::FILE* stream = std::fopen("/dev/null", "r");
      std::fclose(stream);
      // A block at the address of a closed stream is no list of streams.
      void* other = std::memset(allocate(sizeof *stream), 0x5a, sizeof *stream);
      std::free(other);
      ++opened;
    }
  });
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!must_stop) {
        flockfile(shared);
        for (int j = 0; j < 1000; ++j) std::atomic_signal_fence(std::memory_order_seq_cst);
        funlockfile(shared);
        ++locked;
      }
    });
  }
  for (int i = 0; i < 1000; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    BP_PROBE_CHECK(code_of(child) == 0);
  }
  must_stop = true;
  for (std::thread& thread : threads) thread.join();
  BP_PROBE_CHECK(opened > 0 && locked > 0);
  std::fclose(shared);
}
TEST(Fork, ParentsStreamsAreItsOwn) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ParentsStreamsAreItsOwn);
}

// The parent's buffered text is written when the parent ends, not when its child does.
BP_PROBE(ParentFlushesItsStreamsItself) {
  std::FILE* stream = fdopen(dup(STDERR_FILENO), "w");
  BP_PROBE_CHECK(in_pool_range(stream));
  BP_PROBE_CHECK(std::fputs("of the parent", stream) >= 0);
  const pid_t child = fork();
  if (child == 0) std::exit(0);
  BP_PROBE_CHECK(code_of(child) == 0);
  BP_PROBE_CHECK(write(STDERR_FILENO, "child ended, ", 13) == 13);
  std::exit(0);
}
TEST(Fork, ParentFlushesItsStreamsItself) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended = test::run_fresh("ParentFlushesItsStreamsItself");
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_EQUAL("child ended, of the parent", ended.text);
}

BP_PROBE(StandardOutputIsCopied) {
  int output[2];
  int has_printed[2];
  int may_end[2];
  BP_PROBE_CHECK(pipe(output) == 0 && pipe(has_printed) == 0 && pipe(may_end) == 0);
  BP_PROBE_CHECK(dup2(output[1], STDOUT_FILENO) == STDOUT_FILENO);
  BP_PROBE_CHECK(std::setvbuf(stdout, nullptr, _IOFBF, 4096) == 0);
  std::printf("before, ");
  char byte = 0;
  const pid_t child = fork();
  if (child == 0) {
    std::printf("child\n");
    if (write(has_printed[1], "", 1) != 1 || read(may_end[0], &byte, 1) != 1) _exit(1);
    std::exit(0);
  }
  BP_PROBE_CHECK(read(has_printed[0], &byte, 1) == 1);
  std::printf("parent, who writes more\n");
  std::fflush(stdout);
  BP_PROBE_CHECK(write(may_end[1], "", 1) == 1);
  BP_PROBE_CHECK(code_of(child) == 0);
  char said[100] = {};
  BP_PROBE_CHECK(read(output[0], said, sizeof said - 1) > 0);
  std::fprintf(stderr, "%s", said);
  BP_PROBE_CHECK(std::strcmp(said, "before, parent, who writes more\nbefore, child\n") == 0);
}
TEST(Fork, StandardOutputIsCopied) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(StandardOutputIsCopied);
}

// A child zeroes the thread-specific values that libc holds on the heap.
BP_PROBE(WarnsOfThreadSpecificValuesThatAChildEmpties) {
  for (int i = 0; i < 40; ++i) {
    pthread_key_t key = 0;
    BP_PROBE_CHECK(pthread_key_create(&key, nullptr) == 0);
  }
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    BP_PROBE_CHECK(code_of(child) == 0);
  }
}
TEST(Fork, WarnsOfThreadSpecificValuesThatAChildEmpties) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended = test::run_fresh("WarnsOfThreadSpecificValuesThatAChildEmpties");
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_CONTAINS("warning: fork() empties the thread-specific values", ended.text);
  const char* first = std::strstr(ended.text, "fork() empties");
  POINTERS_EQUAL(nullptr, std::strstr(first + 1, "fork() empties"));
}

BP_PROBE(SpawnSystemAndPopenWork) {
  Load load;
  for (int i = 0; i < 10; ++i) {
    const std::string command = "test 0" + std::to_string(i) + " -eq " + std::to_string(i);
    BP_PROBE_CHECK(std::system(command.c_str()) == 0);
    std::FILE* pipe = popen(("echo " + command).c_str(), "r");
    char line[64] = {};
    BP_PROBE_CHECK(std::fgets(line, sizeof line, pipe) != nullptr);
    BP_PROBE_CHECK(line == command + "\n");
    BP_PROBE_CHECK(pclose(pipe) == 0);
    char* arguments[] = {strdup("sh"), strdup("-c"), strdup(command.c_str()), nullptr};
    pid_t child = -1;
    BP_PROBE_CHECK(posix_spawn(&child, "/bin/sh", nullptr, nullptr, arguments, environ) == 0);
    BP_PROBE_CHECK(code_of(child) == 0);
    for (char* argument : arguments) std::free(argument);
  }
  load.stop();
  BP_PROBE_CHECK(load.is_good());
}
TEST(Fork, SpawnSystemAndPopenWork) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(SpawnSystemAndPopenWork);
}
