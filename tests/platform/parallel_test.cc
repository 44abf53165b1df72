#include "platform/parallel.h"

#include <atomic>
#include <thread>

#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Runs on `thread_count` threads that wait for one another. Returns how many ran. The threads
// allocate nothing: a thread that allocates takes 4 MiB of the heap.
unsigned threads_seen(unsigned thread_count, unsigned expected_count) {
  std::atomic<unsigned> arrived_count{0};
  std::atomic<bool> is_caller_among_them{false};
  const std::thread::id caller = std::this_thread::get_id();
  run_in_parallel(thread_count, [&]() noexcept {
    if (std::this_thread::get_id() == caller) is_caller_among_them.store(true);
    arrived_count.fetch_add(1);
    test::eventually([&] { return arrived_count.load() >= expected_count; });
  });
  CHECK(is_caller_among_them.load());
  return arrived_count.load();
}

}  // namespace

TEST_GROUP(Parallel){};

TEST(Parallel, RunsOnAsManyThreadsAsAsked) {
  LONGS_EQUAL(2, threads_seen(2, 2));
  LONGS_EQUAL(7, threads_seen(7, 7));
}

TEST(Parallel, OneThreadIsTheCallingOne) {
  LONGS_EQUAL(1, threads_seen(1, 1));
  LONGS_EQUAL(1, threads_seen(0, 1));
}

TEST(Parallel, MoreThanItsBoundIsTheBound) { LONGS_EQUAL(64, threads_seen(1000, 64)); }

TEST(Parallel, ReturnsWhenAllWorkIsDone) {
  constexpr unsigned kItemCount = 10'000;
  static int results[kItemCount];
  std::atomic<unsigned> next{0};
  run_in_parallel(4, [&]() noexcept {
    for (unsigned i; (i = next.fetch_add(1)) < kItemCount;) results[i] = static_cast<int>(i) + 1;
  });
  for (unsigned i = 0; i < kItemCount; ++i) LONGS_EQUAL(i + 1, results[i]);
}
