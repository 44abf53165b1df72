// The lock between threads: one thread holds it, and the waiting threads get it in turn.
#include "transport/messages/turn_lock.h"

#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(TurnLock) { TurnLock lock; };

TEST(TurnLock, CountsWhatManyThreadsAdd) {
  constexpr int kEach = 5000;
  uint64_t count = 0;  // not atomic, on purpose
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) {
        const std::lock_guard guard(lock);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  LONGS_EQUAL(4 * kEach, count);
}

// Even if the holder locks it again at once, as a shard does that polls without end.
TEST(TurnLock, GoesToTheOneThatWaits) {
  bool had_its_turn = false;  // not atomic, on purpose
  lock.lock();
  std::thread waiter([&] {
    const std::lock_guard guard(lock);
    had_its_turn = true;
  });
  CHECK(test::eventually([&] { return lock.waiting_count() == 1; }));
  lock.unlock();
  lock.lock();
  CHECK(had_its_turn);
  lock.unlock();
  waiter.join();
  LONGS_EQUAL(0, lock.waiting_count());
}
