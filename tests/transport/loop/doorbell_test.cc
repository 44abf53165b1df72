// The doorbell alone: silent while the shard is awake, heard while it sleeps.
// event_loop_wake_ups_test.cc tests that no wake-up between threads is lost.
#include "transport/loop/doorbell.h"

#include <memory>

#include <fcntl.h>
#include <poll.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Doorbell) {
  // Allocated separately, because CppUTest's operator new ignores the alignment.
  std::unique_ptr<Doorbell> doorbell_memory = std::make_unique<Doorbell>();
  Doorbell& doorbell = *doorbell_memory;

  void setup() override { CHECK(doorbell.create().ok()); }

  bool is_heard() {
    pollfd event = {doorbell.event_fd(), POLLIN, 0};
    return poll(&event, 1, 0) == 1;
  }
};

TEST(Doorbell, MakesNoSystemCallWhileTheShardIsAwake) {
  doorbell.ring();
  CHECK(!is_heard());
}

TEST(Doorbell, WakesAShardThatAnnouncedItsSleep) {
  doorbell.announce_sleep();
  CHECK(!is_heard());
  doorbell.ring();
  CHECK(is_heard());
}

TEST(Doorbell, IsSilentAgainOnceTheShardIsAwake) {
  doorbell.announce_sleep();
  doorbell.announce_awake();
  doorbell.ring();
  CHECK(!is_heard());
}

TEST(Doorbell, AcknowledgingTakesAllRingsAndNeverBlocks) {
  doorbell.announce_sleep();
  for (int i = 0; i < 3; ++i) doorbell.ring();
  doorbell.acknowledge();
  CHECK(!is_heard());
  doorbell.acknowledge();  // returns although there is nothing to take
  doorbell.ring();
  CHECK(is_heard());
}

TEST(Doorbell, ItsDescriptorIsClosedOnExec) {
  CHECK((fcntl(doorbell.event_fd(), F_GETFD) & FD_CLOEXEC) != 0);
}
