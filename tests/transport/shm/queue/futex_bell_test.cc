// The doorbell on a futex: it wakes a sleeper, leaves an awake thread alone, and loses no ring.
#include "transport/shm/queue/futex_bell.h"

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/units.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(FutexBell) {
  // A lost ring would show as a sleep of this length.
  static constexpr uint64_t kLongNs = 2 * test::kPatienceNs;

  std::atomic<uint32_t> asleep{0};

  // Whether the thread is in futex(2).
  static bool is_in_futex(pid_t tid) {
    std::ifstream file("/proc/self/task/" + std::to_string(tid) + "/syscall");
    long number = -1;
    return file >> number && number == SYS_futex;
  }
  static void wait_until_in_futex(const std::atomic<pid_t>& tid) {
    test::eventually([&] { return tid.load() != 0 && is_in_futex(tid); });
  }

  // `writers` threads publish and ring, and the reader sleeps whenever there is nothing new.
  // Returns its longest sleep.
  uint64_t longest_sleep_ns(BellFence fence, uint32_t writers, uint64_t each) {
    FutexBell bell(asleep, fence);
    std::atomic<uint64_t> published{0};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < writers; ++i) {
      threads.emplace_back([&] {
        FutexBell senders(asleep, fence);
        for (uint64_t n = 0; n < each; ++n) {
          published.fetch_add(1, std::memory_order_release);
          senders.ring();
          if (n % 8 == 0) std::this_thread::yield();
        }
      });
    }
    uint64_t longest_ns = 0;
    for (uint64_t seen = 0; seen < writers * each;) {
      const uint64_t now = published.load(std::memory_order_acquire);
      if (now != seen) {
        seen = now;
        continue;
      }
      bell.announce_sleep();
      if (published.load(std::memory_order_acquire) == seen) {
        const uint64_t begin_ns = monotonic_ns();
        bell.sleep(kLongNs);
        longest_ns = std::max(longest_ns, monotonic_ns() - begin_ns);
      }
      bell.announce_awake();
    }
    for (std::thread& thread : threads) thread.join();
    return longest_ns;
  }
};

TEST(FutexBell, WakesWhoSleeps) {
  for (BellFence fence : {BellFence::kSleeper, BellFence::kBoth}) {
    if (fence == BellFence::kSleeper && !join_bell_fence().ok()) BP_SKIP("no membarrier here");
    FutexBell bell(asleep, fence);
    bell.announce_sleep();
    std::thread ringer([&] { FutexBell(asleep, fence).ring(); });
    const uint64_t begin_ns = monotonic_ns();
    bell.sleep(kLongNs);
    CHECK(monotonic_ns() - begin_ns < test::kPatienceNs);
    ringer.join();
    CHECK(FutexBell::state_of(asleep.load()) == FutexBell::kBeingWoken);
    bell.announce_awake();
    LONGS_EQUAL(0, asleep.load());
  }
}

TEST(FutexBell, ARingBetweenAnnouncingAndSleepingIsNotLost) {
  FutexBell bell(asleep, BellFence::kBoth);
  bell.announce_sleep();
  bell.ring();
  const uint64_t begin_ns = monotonic_ns();
  bell.sleep(UINT64_MAX);
  CHECK(monotonic_ns() - begin_ns < test::kPatienceNs);
}

TEST(FutexBell, SleepsForItsTimeWhenNobodyRings) {
  FutexBell bell(asleep, BellFence::kBoth);
  bell.announce_sleep();
  const uint64_t begin_ns = monotonic_ns();
  bell.sleep(20 * kNsPerMs);
  CHECK(monotonic_ns() - begin_ns >= 15 * kNsPerMs);
  CHECK(FutexBell::state_of(asleep.load()) == FutexBell::kAsleep);
  bell.announce_awake();
  LONGS_EQUAL(0, asleep.load());
}

TEST(FutexBell, RingingWhoIsAwakeWritesNothing) {
  FutexBell bell(asleep, BellFence::kBoth);
  for (int i = 0; i < 10; ++i) bell.ring();
  LONGS_EQUAL(0, asleep.load());
}

// A sleeper in futex(2). A sender that is stopped, or killed, between its two steps leaves the
// sleeper's word in a state which says that a sender is waking it. The tests set that state.
struct StoppedRinger {
  explicit StoppedRinger(std::atomic<uint32_t>& asleep, uint64_t limit_ns)
      : sleeper([this, &asleep, limit_ns] {
          FutexBell bell(asleep, BellFence::kBoth);
          tid.store(gettid());
          bell.announce_sleep();
          const uint64_t begin_ns = monotonic_ns();
          bell.sleep(limit_ns);
          slept_ns = monotonic_ns() - begin_ns;
        }) {}

  std::atomic<pid_t> tid{0};
  uint64_t slept_ns = 0;
  std::thread sleeper;
};

TEST(FutexBell, ASenderThatFindsItBeingWokenWakesItToo) {
  StoppedRinger stopped(asleep, kLongNs);
  wait_until_in_futex(stopped.tid);
  CHECK(FutexBell::state_of(asleep.load()) == FutexBell::kAsleep);
  asleep.store(asleep.load() + FutexBell::kBeingWoken - FutexBell::kAsleep);
  FutexBell(asleep, BellFence::kBoth).ring();
  stopped.sleeper.join();
  CHECK(stopped.slept_ns < test::kPatienceNs);
}

TEST(FutexBell, WakeAnywayWakesWhomADeadRingerLeftAsleep) {
  StoppedRinger killed(asleep, kLongNs);
  wait_until_in_futex(killed.tid);
  asleep.store(asleep.load() + FutexBell::kBeingWoken - FutexBell::kAsleep);
  const bool was_left_asleep = is_in_futex(killed.tid);
  FutexBell(asleep, BellFence::kBoth).wake_anyway();
  killed.sleeper.join();
  CHECK(was_left_asleep);
  CHECK(killed.slept_ns < test::kPatienceNs);
  LONGS_EQUAL(0, asleep.load());
}

TEST(FutexBell, WakeAnywayPutsDownWhatWhoSleepsHasRaised) {
  FutexBell bell(asleep, BellFence::kBoth);
  bell.announce_sleep();
  bell.wake_anyway();
  const uint64_t begin_ns = monotonic_ns();
  bell.sleep(kLongNs);  // returns at once
  CHECK(monotonic_ns() - begin_ns < test::kPatienceNs);
}

TEST(FutexBell, NoRingIsLostWithTheFenceOfTheSleeper) {
  if (!join_bell_fence().ok()) BP_SKIP("no membarrier here");
  CHECK(longest_sleep_ns(BellFence::kSleeper, 1, 20000) < test::kPatienceNs);
  CHECK(longest_sleep_ns(BellFence::kSleeper, 3, 5000) < test::kPatienceNs);
}

TEST(FutexBell, NoRingIsLostWithTheFencesOfBoth) {
  CHECK(longest_sleep_ns(BellFence::kBoth, 1, 20000) < test::kPatienceNs);
  CHECK(longest_sleep_ns(BellFence::kBoth, 3, 5000) < test::kPatienceNs);
}
