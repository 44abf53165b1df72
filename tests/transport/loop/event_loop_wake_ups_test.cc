// The event loop loses no wake-up, whichever sleeper it has.
#include "transport/loop/event_loop.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "platform/clock.h"
#include "platform/sanitizer.h"
#include "tests/support/patience.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "transport/loop/spsc_fifo_datapath.h"
#include "transport/sockets/stream_sockets.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::PlainSleeper;

TEST_GROUP(EventLoopWakeUps){};

namespace {

using Fifo = SpscFifo<uint64_t>;

// Counts the numbers that come out of a lane, and the numbers that are out of order.
class LaneSource final : public PollSource {
 public:
  explicit LaneSource(Fifo& fifo) noexcept : fifo_(fifo) {}
  uint32_t poll(uint32_t budget) noexcept override {
    uint64_t batch[16];
    const size_t count = fifo_.pop_batch({batch, std::min<size_t>(budget, 16)});
    for (size_t i = 0; i < count; ++i) wrong += batch[i] != expected++;
    if (count > 0) taken.store(expected, std::memory_order_release);
    return static_cast<uint32_t>(count);
  }
  std::atomic<uint64_t> taken{0};
  uint64_t wrong = 0;

 private:
  Fifo& fifo_;
  uint64_t expected = 0;
};

struct WakeUpRun {
  uint64_t pushed = 0;
  uint64_t wrong = 0;
  uint64_t sleeps = 0;
  bool was_lost = false;
  bool has_backend = true;
};

enum class SleepsIn { kPlain, kEpoll, kUring };

// Pushes and rings at random moments, mostly when the loop is just about to sleep: each push waits
// until the previous item was taken, and then for a random short time.
void produce(Fifo& fifo, EventLoop& loop, LaneSource& source, uint64_t seed, uint64_t rounds,
             WakeUpRun& run) {
  std::mt19937_64 random(seed);
  for (; run.pushed < rounds && !run.was_lost; ++run.pushed) {
    for (uint64_t i = random() % 2000; i-- > 0;) cpu_relax();
    fifo.try_push(run.pushed);
    loop.doorbell().ring();
    const uint64_t end = monotonic_ns() + test::kPatienceNs;
    while (source.taken.load(std::memory_order_acquire) <= run.pushed && !run.was_lost) {
      run.was_lost = monotonic_ns() > end;
      if (random() % 8 == 0) std::this_thread::yield();
    }
  }
}

WakeUpRun run_wake_ups(SleepsIn where, uint64_t seed, uint64_t rounds) {
  WakeUpRun run;
  EventLoop loop;
  EventLoopCounters counters;
  SocketCounters socket_counters;
  EventLoopOptions options;
  options.spin_ns = 0;
  options.counters = &counters;
  if (!loop.create(options).ok()) return run;
  alignas(kCacheLineBytes) std::byte memory[Fifo::bytes_for(64)];
  Fifo& fifo = *Fifo::create(memory, 64);
  LaneSource source(fifo);
  PlainSleeper plain(loop);
  std::unique_ptr<StreamSockets> sockets;
  if (where == SleepsIn::kEpoll) sockets = make_epoll_sockets();
  if (where == SleepsIn::kUring) sockets = make_uring_sockets();
  if (sockets != nullptr) {
    StreamSocketsOptions socket_options;
    socket_options.loop = &loop;
    socket_options.counters = &socket_counters;
    run.has_backend = sockets->create(socket_options).ok();
    if (!run.has_backend) return run;
    loop.add_source(*sockets, 16);
    loop.set_sleeper(*sockets);
  } else {
    loop.set_sleeper(plain);
  }
  loop.add_source(source, 16);
  std::thread producer([&] {
    produce(fifo, loop, source, seed, rounds, run);
    loop.stop();
  });
  loop.run();
  producer.join();
  run.wrong = source.wrong;
  run.sleeps = counters.sleeps.read();
  return run;
}

void check_wake_ups(SleepsIn where) {
  const test::Seed seed;
  // On one processor the threads take turns, and race only where they are preempted.
  const bool is_slow = test::kIsSanitized || std::thread::hardware_concurrency() < 2;
  const uint64_t rounds = is_slow ? 5'000 : 30'000;
  const WakeUpRun run = run_wake_ups(where, seed.value(), rounds);
  if (!run.has_backend) BP_SKIP("io_uring is not available here");
  CHECK_TEXT(!run.was_lost, seed.text());
  CHECK_EQUAL_TEXT(rounds, run.pushed, seed.text());
  CHECK_EQUAL_TEXT(0, run.wrong, seed.text());
  CHECK_TEXT(run.sleeps > 100, "it hardly ever slept, so this has shown nothing");
}

}  // namespace

TEST(EventLoopWakeUps, NoneIsLostThatSleepsOnTheDoorbell) { check_wake_ups(SleepsIn::kPlain); }
TEST(EventLoopWakeUps, NoneIsLostThatSleepsInEpoll) { check_wake_ups(SleepsIn::kEpoll); }
TEST(EventLoopWakeUps, NoneIsLostThatSleepsInIoUring) { check_wake_ups(SleepsIn::kUring); }
