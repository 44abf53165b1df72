// The lock between threads, and the guard that may do without.
#include "transport/shm/spin_lock.h"

#include <thread>
#include <vector>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(SpinLock) { SpinLock lock; };

TEST(SpinLock, IsHeldByOne) {
  CHECK(lock.try_lock());
  CHECK_FALSE(lock.try_lock());
  lock.unlock();
  CHECK(lock.try_lock());
  lock.unlock();
}

TEST(SpinLock, AGuardHoldsItOnlyIfItIsWanted) {
  {
    const SpinGuard guard(lock, true);
    CHECK_FALSE(lock.try_lock());
  }
  const SpinGuard none(lock, false);
  CHECK(lock.try_lock());
  lock.unlock();
}

TEST(SpinLock, CountsWhatManyThreadsAdd) {
  constexpr int kEach = 20000;
  uint64_t count = 0;  // plain on purpose
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) {
        const SpinGuard guard(lock, true);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  LONGS_EQUAL(4 * kEach, count);
}
