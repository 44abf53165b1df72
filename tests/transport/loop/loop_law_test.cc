// The data path's law for event loops, for lanes and calls between shards, for timers and for keys.
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "tests/support/datapath_law.h"
#include "tests/support/fake_device.h"
#include "tests/support/patience.h"
#include "tests/support/pool_fixture.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/spsc_fifo_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr uint32_t kWarmRounds = 1000;
constexpr uint32_t kWatchedRounds = 1000;

// Watches the law during some rounds of the loop that polls it, and then stops the loop.
class Watcher final : public PollSource {
 public:
  explicit Watcher(EventLoop& loop) noexcept : loop_(loop) {
    call_.context = again_.context = this;
    call_.function = [](void* self) noexcept { ++static_cast<Watcher*>(self)->call_count; };
    again_.expired = [](void* self) noexcept {
      auto& its = *static_cast<Watcher*>(self);
      ++its.expiry_count;
      its.loop_.timers().arm(its.again_, its.loop_.now_ns() + 1);
    };
  }
  uint32_t poll(uint32_t) noexcept override {
    if (!again_.is_armed()) loop_.timers().arm(again_, loop_.now_ns());
    if (++round_ == kWarmRounds) watch_.emplace();
    loop_.submit(call_);
    if (round_ == kWarmRounds + kWatchedRounds) {
      breach_count = watch_->end();
      loop_.timers().cancel(again_);
      loop_.stop();
    }
    return 1;
  }
  uint32_t call_count = 0;
  uint32_t expiry_count = 0;
  uint32_t breach_count = 1;

 private:
  EventLoop& loop_;
  LoopCall call_;
  Timer again_;
  uint32_t round_ = 0;
  std::optional<LawWatch> watch_;
};

}  // namespace

TEST_GROUP(LoopLaw) {
  // Allocated separately, because CppUTest's operator new ignores the alignment.
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  EventLoopCounters counters;
  PlainSleeper sleeper{*loop};
  TestPool pool{kTestPoolBaseInRange};
};

// The second loop also reads the clock in each round, to detect stalls.
TEST(LoopLaw, RoundsOfABusyLoop) {
  BP_SKIP_WITHOUT_LAW();
  for (const uint64_t stall_ns : {uint64_t{0}, kPatienceNs}) {
    loop = std::make_unique<EventLoop>();
    CHECK(loop->create({.stall_ns = stall_ns, .counters = &counters}).ok());
    loop->set_sleeper(sleeper);
    loop->timers().reserve_more(1);
    Watcher watcher(*loop);
    SourceCounters its_counters;
    loop->add_source(watcher, 8, "the watcher", &its_counters);
    loop->run();
    LONGS_EQUAL(0, watcher.breach_count);
    LONGS_EQUAL(kWarmRounds + kWatchedRounds - 1, watcher.call_count);
    CHECK(watcher.expiry_count > kWatchedRounds / 32);
  }
}

// The loop sleeps, so each call rings its doorbell.
TEST(LoopLaw, CallsFromAnotherThread) {
  BP_SKIP_WITHOUT_LAW();
  CHECK(loop->create({.spin_ns = 0, .counters = &counters}).ok());
  loop->set_sleeper(sleeper);
  std::atomic<uint32_t> count{0};
  LoopCall call;
  call.function = [](void* context) noexcept { ++*static_cast<std::atomic<uint32_t>*>(context); };
  call.context = &count;
  std::thread shard([&] { loop->run(); });
  uint32_t breaches = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    breaches += breaches_in([&] { loop->submit(call); });
    CHECK(eventually([&] { return count == i + 1; }));
  }
  breaches += breaches_in([&] { loop->stop(); });
  shard.join();
  LONGS_EQUAL(0, breaches);
}

TEST(LoopLaw, Lanes) {
  BP_SKIP_WITHOUT_LAW();
  using Lane = SpscFifo<uint64_t>;
  alignas(kCacheLineBytes) std::byte memory[Lane::bytes_for(64)];
  Lane& lane = *Lane::create(memory, 64);
  uint64_t items[100] = {};
  size_t moved = 0;
  LONGS_EQUAL(0, breaches_in([&] {
                for (uint64_t i = 0; i < 100; ++i) {
                  uint64_t item = 0;
                  moved += lane.try_push(i) && lane.try_pop(&item) ? 1 : 0;
                  moved += lane.push_batch(items);
                  moved -= lane.pop_batch(items);
                }
                while (lane.pop_batch(items) > 0) {
                }
              }));
  LONGS_EQUAL(100, moved);
}

TEST(LoopLaw, Timers) {
  BP_SKIP_WITHOUT_LAW();
  TimerQueue timers;
  Timer each[32];
  timers.reserve_more(32);
  uint32_t expired = 0;
  for (Timer& timer : each) {
    timer.context = &expired;
    timer.expired = [](void* context) noexcept { ++*static_cast<uint32_t*>(context); };
  }
  LONGS_EQUAL(0, breaches_in([&] {
                for (uint64_t i = 0; i < 32; ++i) timers.arm(each[i], i * 7919 % 32);
                for (uint64_t i = 0; i < 32; i += 2) timers.cancel(each[i]);
                timers.expire(32);
              }));
  LONGS_EQUAL(16, expired);
}

TEST(LoopLaw, Keys) {
  BP_SKIP_WITHOUT_LAW();
  const std::span<std::byte> memory = pool.memory(64 * kKiB);
  FakeDevice device;
  KeyTable keys;
  CHECK(keys.create(*pool, device).ok());
  KeyedRange inside, outside;
  LONGS_EQUAL(0, breaches_in([&] {
                inside = keys.key(memory.data() + 100, 8);
                outside = keys.key(&device, 8);
              }));
  CHECK(inside.key == 100 && inside.bytes == 8 && outside.key == kNoKey);
}
