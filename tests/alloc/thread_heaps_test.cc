// Memory that idle threads withhold, and how other threads take it.
#include "alloc/thread_heaps.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "alloc/pool_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"
#include "tests/alloc/heap_rig.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr size_t kBlock = 40'000;

// A thread that runs `work`, sleeps until the destructor wakes it, and runs `at_end`.
class Sleeper {
 public:
  template <typename Work, typename AtEnd>
  Sleeper(Work work, AtEnd at_end)
      : thread_([this, work, at_end] {
          work();
          tid_.store(gettid(), std::memory_order_release);
          is_over_.wait(false);
          at_end();
        }) {}
  ~Sleeper() {
    is_over_.store(true);
    is_over_.notify_one();
    thread_.join();
  }

  void wait_until_asleep() {
    BP_PROBE_CHECK(test::eventually([this] { return is_asleep(); }));
  }

 private:
  bool is_asleep() {
    const int tid = tid_.load(std::memory_order_acquire);
    if (tid == 0) return false;
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    char first = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    BP_PROBE_CHECK(fd >= 0 && read(fd, &first, 1) == 1);
    close(fd);
    return first >= '0' && first <= '9';
  }

  std::atomic<int> tid_{0};
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace

BP_PROBE(IdleThreadWithholdsNothing) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  constexpr size_t kMost = 44 * kMiB;
  BlockList freed_behind_its_back;
  BlockList kept;
  bool could_go_on = false;
  {
    Sleeper sleeper(
        [&] {
          const HeapOwnerScope scope(heap_owner("heap:sleeper").take());
          for (const size_t bytes : {size_t{24}, size_t{700}, size_t{9000}, size_t{kBlock}}) {
            for (size_t i = 0; i < 4 * kMiB / bytes; ++i) freed_behind_its_back.add(bytes);
            kept.add(bytes);
          }
          BlockList own;  // and empty pages that the thread holds for later
          for (size_t bytes = 8; bytes < 100'000; bytes += bytes / 2) own.add(bytes);
        },
        [&] {
          // Its heap was emptied while the thread slept. It can free its blocks, and take new ones.
          kept.free_all();
          BlockList again;
          could_go_on = again.add_all(kBlock) > 100;
        });
    sleeper.wait_until_asleep();
    freed_behind_its_back.free_all();
    kept.free_all();
    BlockList whole;
    BP_PROBE_CHECK(whole.add(kMost));
  }
  BP_PROBE_CHECK(could_go_on);
}

// The sleeper's blocks of two owners lie in one of mimalloc's segments. Another thread reaches the
// first owner's limit, and takes the memory that the sleeper withholds from that owner.
BP_PROBE(SleeperOfTwoOwners) {
  boot_heap(64 * kMiB);
  const HeapOwner limited = heap_owner("heap:limited").take();
  const HeapOwner other = heap_owner("heap:other").take();
  limit_heap_owner(limited, 16 * kMiB);
  BlockList of_limited;
  BlockList of_other;
  {
    Sleeper sleeper(
        [&] {
          for (int i = 0; i < 20; ++i) {
            const HeapOwnerScope scope(i % 2 == 0 ? limited : other);
            BP_PROBE_CHECK((i % 2 == 0 ? of_limited : of_other).add(kBlock));
          }
        },
        [&] {
          std::free(allocate(24));  // takes its heaps back
          of_limited.free_all();
          const HeapOwnerScope scope(limited);
          for (int i = 0; i < 100; ++i) BP_PROBE_CHECK(of_limited.add(kBlock));
          of_limited.free_all();
          of_other.free_all();
        });
    sleeper.wait_until_asleep();
    const HeapOwnerScope scope(limited);
    BlockList hoard;
    hoard.add_all(kBlock);
    BP_PROBE_CHECK(heap_owner_use(limited).refused_count > 0);
  }
  find_all_that_is_free();  // also in this thread's other heaps
  BP_PROBE_CHECK(heap_owner_use(limited).used_bytes == 0);
}

// A request that no heap could serve starts no search: no thread's heaps are emptied for it.
BP_PROBE(AbsurdRequestsCollectNothing) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  const HeapOwner owner = heap_owner("heap:idle").take();
  BlockList blocks;
  Sleeper sleeper(
      [&] {
        const HeapOwnerScope scope(owner);
        for (int i = 0; i < 100; ++i) BP_PROBE_CHECK(blocks.add(kBlock));
        blocks.free_all();
      },
      [] {});
  sleeper.wait_until_asleep();
  const uint64_t kept = heap_owner_use(owner).used_bytes;
  BP_PROBE_CHECK(kept > 0);
  volatile size_t absurd = kTiB;
  BP_PROBE_CHECK(allocate(absurd) == nullptr);
  BP_PROBE_CHECK(heap_owner_use(owner).used_bytes == kept);
  find_all_that_is_free();
  BP_PROBE_CHECK(heap_owner_use(owner).used_bytes == 0);
}

BP_PROBE(HugeBlockFreedByAnotherThread) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  std::atomic<void*> block{nullptr};
  std::atomic<bool> is_over{false};
  std::thread owner([&] {
    block = allocate(40 * kMiB);
    while (!is_over) {
    }  // awake, without calls of malloc or free
  });
  while (block == nullptr) sched_yield();
  std::free(block);
  BlockList whole;
  const bool is_there = whole.add(44 * kMiB);
  is_over = true;
  owner.join();
  BP_PROBE_CHECK(is_there);
}

BP_PROBE(ThreadWakesAtAnyMoment) {
  boot_heap(64 * kMiB, kHeapReserveBytes);
  std::atomic<uint64_t> rounds{0};
  constexpr uint64_t kRounds = 4000;
  std::thread busy([&] {
    void* blocks[300];
    while (rounds < kRounds) {
      for (size_t i = 0; i < std::size(blocks); ++i) {
        const size_t bytes = 16 + i * 8;
        blocks[i] = allocate(bytes);
        BP_PROBE_CHECK(blocks[i] != nullptr);
        std::memset(blocks[i], static_cast<int>(i), bytes);
      }
      if (rounds % 2 == 0) usleep(1);
      for (size_t i = 0; i < std::size(blocks); ++i) {
        const auto* bytes = static_cast<const unsigned char*>(blocks[i]);
        BP_PROBE_CHECK(bytes[0] == i % 256 && bytes[15 + i * 8] == i % 256);
        std::free(blocks[i]);
      }
      ++rounds;
    }
  });
  BlockList held;  // so that no request gets the whole heap
  BP_PROBE_CHECK(held.add(5 * kMiB));
  // At any instruction, the thread's words are reset and restored, and its heaps are emptied.
  while (rounds < kRounds) find_all_that_is_free();
  busy.join();
  held.free_all();
  BlockList whole;
  BP_PROBE_CHECK(whole.add(44 * kMiB));
}

TEST_GROUP(ThreadHeaps){};

TEST(ThreadHeaps, AnIdleThreadWithholdsNothing) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(IdleThreadWithholdsNothing);
}

TEST(ThreadHeaps, AreLeftAloneForARequestThatNoHeapCouldServe) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(AbsurdRequestsCollectNothing);
}

TEST(ThreadHeaps, AHugeBlockIsFreeWhoeverFreesIt) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(HugeBlockFreedByAnotherThread);
}

TEST(ThreadHeaps, AreEmptiedWhileTheirThreadWakesAtAnyMoment) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ThreadWakesAtAnyMoment);
}

TEST(ThreadHeaps, OfASleeperAreAllEmptiedForTheLimitOfOneOwner) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(SleeperOfTwoOwners);
}
