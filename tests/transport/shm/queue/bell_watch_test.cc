// A loop that sleeps on its own doorbell is woken by the futex bell of a messenger that it polls,
// and no ring is lost. Members are threads, so that ThreadSanitizer sees them.
#include "transport/shm/queue/bell_watch.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/transport/loop/plain_sleeper.h"
#include "tests/transport/shm/group_rig.h"
#include "transport/loop/event_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

constexpr AmId kId = 1;

// The parts of an appliance: one loop, member 0 of several groups, and one watch. Member 1 of each
// group sends.
struct WatchRig final : PollSource {
  explicit WatchRig(uint32_t group_count) {
    CHECK(loop.create({.spin_ns = 0, .counters = &counters}).ok());
    for (uint32_t i = 0; i < group_count; ++i) {
      groups.push_back(std::make_unique<GroupRig>(shape_of(GroupKind::kLazy, 2)));
      Member& own = groups.back()->join(0);
      groups.back()->join(1);
      own.messenger.set_handler(kId, {[](void* context, const Message&) noexcept {
                                        static_cast<WatchRig*>(context)->heard.fetch_add(1);
                                      },
                                      this});
      owns.push_back(&own);
      bells.push_back(own.shm.bell());
    }
    loop.set_sleeper(sleeper);
    loop.add_source(*this, 64);
  }
  ~WatchRig() override {
    loop.stop();
    if (thread.joinable()) thread.join();
    watch.stop();
  }
  void run() {
    CHECK(watch.start(bells, loop.doorbell()).ok());
    thread = std::thread([this] { loop.run(); });
  }
  // Returns whether the loop has heard `count` messages in time.
  bool hears(uint32_t count) const {
    return eventually([&] { return heard.load() >= count; });
  }
  void wait_for_sleep() const {
    while (groups[0]->segment().wrapper(0).asleep.load() == 0) std::this_thread::yield();
  }

  uint32_t poll(uint32_t budget) noexcept override {
    uint32_t count = 0;
    for (Member* own : owns) count += own->messenger.poll(budget);
    return count;
  }
  void announce_sleep() noexcept override {
    for (Member* own : owns) own->shm.raise_bell();
    pass_bell_fence(groups[0]->segment().fence());
    watch.announce_sleep();
  }
  void announce_awake() noexcept override {
    for (Member* own : owns) own->shm.announce_awake();
  }

  EventLoopCounters counters;
  EventLoop loop;
  PlainSleeper sleeper{loop};
  std::vector<std::unique_ptr<GroupRig>> groups;
  std::vector<Member*> owns;
  std::vector<FutexBell> bells;
  BellWatch watch;
  std::thread thread;
  std::atomic<uint32_t> heard{0};
};

}  // namespace

TEST_GROUP(BellWatch){};

TEST(BellWatch, WakesALoopThatSleeps) {
  WatchRig rig(2);
  Endpoint& to_own = rig.groups[1]->attach(1).to(0);
  rig.run();
  for (uint32_t i = 1; i <= 3; ++i) {
    rig.wait_for_sleep();
    CHECK(to_own.am_send(kId, {}) == SendStatus::kDone);
    CHECK(rig.hears(i));
  }
}

TEST(BellWatch, LosesNoRing) {
  const uint32_t count = 20000;
  WatchRig rig(2);
  Endpoint* to_own[] = {&rig.groups[0]->attach(1).to(0), &rig.groups[1]->attach(1).to(0)};
  rig.run();
  // Sends each message as soon as the previous one was heard, so that it meets the loop at another
  // step before its sleep. Now and then the doorbell rings as well, as for sockets.
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t pause = i % 64; pause > 0; --pause) cpu_relax();
    if (i % 5 == 0) rig.loop.doorbell().ring();
    CHECK(to_own[i % 3 == 0]->am_send(kId, {}) == SendStatus::kDone);
    CHECK_TEXT(rig.hears(i + 1), "a ring was lost");
  }
  CHECK_FALSE(rig.sleeper.overslept);
}

TEST(BellWatch, DoesNotDisturbALoopThatOthersWake) {
  constexpr uint64_t kRings = 1000;
  WatchRig rig(1);
  rig.run();
  for (uint64_t i = 0; i < kRings; ++i) {
    const uint64_t sleeps = rig.counters.sleeps.read();
    rig.loop.doorbell().ring();
    while (rig.counters.sleeps.read() == sleeps) std::this_thread::yield();
  }
  // One sleep for each ring, and a few more until the watch waits on a raised bell.
  CHECK(rig.counters.sleeps.read() < kRings * 3 / 2);
  CHECK_FALSE(rig.sleeper.overslept);
}

TEST(BellWatch, EndsWhereverItIs) {
  for (uint32_t i = 0; i < 200; ++i) {
    WatchRig rig(1);
    Endpoint& to_own = rig.groups[0]->attach(1).to(0);
    rig.run();
    if (i % 2 == 0) rig.wait_for_sleep();
    if (i % 4 < 2) CHECK(to_own.am_send(kId, {}) == SendStatus::kDone);
  }
}
