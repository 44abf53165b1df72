// Lives: words that the kernel clears when their holder ends in any way. A thread can hold several.
#include "pinned_pool/join/owner_life.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <unistd.h>

#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint32_t kLifeCount = 4;

struct Shared {
  OwnerLife lives[kLifeCount];
  pthread_mutex_t mutex;
};

// Whether this process has a mapping at `address`.
bool is_mapped(uint64_t address) {
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  uint64_t begin = 0, end = 0;
  bool is = false;
  while (!is && std::fgets(line, sizeof line, maps) != nullptr) {
    is = std::sscanf(line, "%" SCNx64 "-%" SCNx64, &begin, &end) == 2 && address >= begin &&
         address < end;
  }
  std::fclose(maps);
  return is;
}

}  // namespace

TEST_GROUP(OwnerLife) {
  Shared* shared = nullptr;

  void setup() override {
    void* memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    shared = std::construct_at(static_cast<Shared*>(memory));
  }
  void teardown() override { munmap(shared, sizeof(Shared)); }

  uint32_t held_count() const {
    uint32_t count = 0;
    for (const OwnerLife& life : shared->lives) count += life.is_held();
    return count;
  }
  // Whether the lives contain only addresses within the lives, which their readers know.
  bool shows_no_address() const {
    const auto begin = reinterpret_cast<uint64_t>(shared);
    // Aligned words only, as pointers are: a thread id across two fields could pass for a pointer.
    for (size_t at = 0; at + sizeof(uint64_t) <= sizeof shared->lives; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const std::byte*>(shared) + at, sizeof word);
      const bool is_own = word - begin < sizeof shared->lives;
      // A futex word: the holder's thread ID and two bits of the kernel.
      const bool is_thread =
          word >> 32 == 0 && (word & FUTEX_TID_MASK) == static_cast<uint64_t>(gettid());
      if (!is_own && !is_thread && is_mapped(word)) return false;
    }
    return true;
  }
};

TEST(OwnerLife, IsHeldUntilItIsReleased) {
  LONGS_EQUAL(0, held_count());
  BP_ASSERT(shared->lives[1].hold().ok());
  LONGS_EQUAL(1, held_count());
  CHECK(shared->lives[1].is_held());
  shared->lives[1].release();
  LONGS_EQUAL(0, held_count());
}

TEST(OwnerLife, EveryOneOfADeadHolderIsCleared) {
  const test::Ended ended = test::run_forked([&] {
    for (OwnerLife& life : shared->lives) BP_ASSERT(life.hold().ok());
    BP_PROBE_CHECK(held_count() == kLifeCount);
    raise(SIGKILL);
  });
  LONGS_EQUAL(SIGKILL, ended.signal);
  LONGS_EQUAL(0, held_count());
}

// The list's head lies in one of the lives. In any order of release, the other lives stay in the
// list.
TEST(OwnerLife, WhatIsLeftIsClearedInWhateverOrderOthersWereReleased) {
  for (uint32_t first = 0; first < kLifeCount; ++first) {
    for (uint32_t second = 0; second < kLifeCount; ++second) {
      const test::Ended ended = test::run_forked([&] {
        for (OwnerLife& life : shared->lives) BP_ASSERT(life.hold().ok());
        shared->lives[first].release();
        if (second != first) shared->lives[second].release();
        BP_ASSERT(shared->lives[first].hold().ok());
        BP_PROBE_CHECK(held_count() == (second == first ? kLifeCount : kLifeCount - 1));
      });
      LONGS_EQUAL(0, ended.exit_code);
      LONGS_EQUAL(0, held_count());
    }
  }
}

TEST(OwnerLife, ShowsNoAddressOfItsHolder) {
  CHECK(shows_no_address());
  for (uint32_t i = 0; i < kLifeCount; ++i) {
    BP_ASSERT(shared->lives[i].hold().ok());
    CHECK(shows_no_address());
  }
  for (OwnerLife& life : shared->lives) {
    life.release();
    CHECK(shows_no_address());
  }
}

// A forked child has copies of the parent's variables, but a separate list.
TEST(OwnerLife, AForkedChildHoldsItsOwnAlone) {
  BP_ASSERT(shared->lives[0].hold().ok());
  const test::Ended ended = test::run_forked([&] {
    BP_ASSERT(shared->lives[1].hold().ok());
    BP_PROBE_CHECK(held_count() == 2);
  });
  LONGS_EQUAL(0, ended.exit_code);
  CHECK(shared->lives[0].is_held());
  CHECK_FALSE(shared->lives[1].is_held());
  shared->lives[0].release();
}

TEST(OwnerLife, KnowsWhetherItsThreadsListIsValid) {
  CHECK(OwnerLife::list_is_valid());  // there is no list
  const test::Ended ended = test::run_forked([&] {
    for (OwnerLife& life : shared->lives) BP_ASSERT(life.hold().ok());
    BP_PROBE_CHECK(OwnerLife::list_is_valid());
    auto* const word = reinterpret_cast<uint32_t*>(&shared->lives[1]);
    const uint32_t its = *word;
    *word = its + 1;  // another thread's life in this thread's list
    BP_PROBE_CHECK(!OwnerLife::list_is_valid());
    *word = its;
    auto* const link = reinterpret_cast<void**>(word + 2);
    void* const behind = *link;
    *link = link;  // the kernel would follow the cycle
    BP_PROBE_CHECK(!OwnerLife::list_is_valid());
    *link = behind;
    BP_PROBE_CHECK(OwnerLife::list_is_valid());
  });
  LONGS_EQUAL(0, ended.exit_code);
}

TEST(OwnerLife, OnlyItsHolderReleasesIt) {
  BP_ASSERT(shared->lives[0].hold().ok());
  BP_CHECK_DIES("assertion failed", shared->lives[0].release());
  shared->lives[0].release();
}

// A seccomp profile forbids the call: hold() names the call, and nobody holds the life.
TEST(OwnerLife, IsRefusedWhereTheKernelTakesNoList) {
  for (const auto& [number, name] : {std::pair{SYS_get_robust_list, "get_robust_list"},
                                     std::pair{SYS_set_robust_list, "set_robust_list"}}) {
    const test::Ended ended = test::run_forked([&, number = number, name = name] {
      BP_PROBE_CHECK(test::forbid_call(static_cast<uint32_t>(number), EPERM));
      const auto held = shared->lives[0].hold();
      BP_PROBE_CHECK(!held.ok());
      BP_PROBE_CHECK(std::strstr(held.error().cure, name) != nullptr);
      BP_PROBE_CHECK(!shared->lives[0].is_held());
    });
    LONGS_EQUAL(0, ended.exit_code);
  }
}

// Robust mutexes of the C library work as before once all lives are released.
TEST(OwnerLife, GivesTheThreadItsListBack) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  const test::Ended ended = test::run_forked([&] {
    for (OwnerLife& life : shared->lives) BP_ASSERT(life.hold().ok());
    for (OwnerLife& life : shared->lives) life.release();
    BP_PROBE_CHECK(pthread_mutex_lock(&shared->mutex) == 0);
  });
  LONGS_EQUAL(0, ended.exit_code);
  LONGS_EQUAL(EOWNERDEAD, pthread_mutex_trylock(&shared->mutex));
}
