// The heap pages of a loop's thread: it keeps no empty page during a long sleep.
#include <memory>
#include <thread>

#include "alloc/confined_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/skip.h"
#include "tests/transport/loop/plain_sleeper.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// A thread with a loop, and a call that allocates blocks, frees them all and leaves an empty page.
struct Rig {
  std::unique_ptr<EventLoop> loop = std::make_unique<EventLoop>();
  EventLoopCounters counters;
  PlainSleeper sleeper{*loop};
  LoopCall call;
  Timer timer;
  std::atomic<bool> has_taken{false};
  uint64_t free_bytes_before = 0;
  std::thread thread;

  Rig() {
    auto heap = process_pool().create_segment("heap", 64 * kMiB, PageSize::k4KiB, 1);
    BP_PROBE_CHECK(heap.ok() && add_heap_memory(heap.value()->memory()));
    retire_boot_heap();
    EventLoopOptions options;
    options.counters = &counters;
    BP_PROBE_CHECK(loop->create(options).ok());
    loop->timers().reserve_more(1);
    loop->set_sleeper(sleeper);
    call.context = timer.context = this;
    call.function = [](void* self) noexcept { static_cast<Rig*>(self)->use_heap(); };
    thread = std::thread([this] { loop->run(); });
    free_bytes_before = heap_free_bytes();
  }
  ~Rig() {
    loop->stop();
    thread.join();
  }

  void use_heap() noexcept {
    BlockList blocks;
    for (int i = 0; i < 1000; ++i) blocks.add(500);
    has_taken = heap_free_bytes() < free_bytes_before;
    blocks.free_all();
  }
  bool is_all_free() const noexcept { return heap_free_bytes() == free_bytes_before; }
};

}  // namespace

BP_PROBE(LoopReturnsPagesBeforeALongSleep) {
  Rig rig;
  rig.loop->submit(rig.call);
  BP_PROBE_CHECK(eventually([&] { return rig.has_taken && rig.is_all_free(); }));
  // Once more, after the loop was awake.
  rig.has_taken = false;
  rig.loop->submit(rig.call);
  BP_PROBE_CHECK(eventually([&] { return rig.has_taken && rig.is_all_free(); }));
}

// A timer makes each sleep of the loop short.
BP_PROBE(LoopKeepsPagesInShortSleeps) {
  Rig rig;
  rig.timer.expired = [](void* self) noexcept {
    auto& its = *static_cast<Rig*>(self);
    if (!its.has_taken) its.use_heap();
    its.loop->timers().arm(its.timer, its.loop->look_at_clock() + kNsPerMs);
  };
  rig.call.function = rig.timer.expired;
  rig.loop->submit(rig.call);
  BP_PROBE_CHECK(eventually([&] { return rig.has_taken.load(); }));
  const uint64_t sleeps = rig.counters.sleeps.read();
  BP_PROBE_CHECK(eventually([&] { return rig.counters.sleeps.read() > sleeps + 3; }));
  BP_PROBE_CHECK(!rig.is_all_free());
}

TEST_GROUP(EventLoopPages){};

TEST(EventLoopPages, ItReturnsThoseThatAreEmptyBeforeALongSleep) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LoopReturnsPagesBeforeALongSleep);
}

TEST(EventLoopPages, ItKeepsThemInShortSleeps) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(LoopKeepsPagesInShortSleeps);
}
