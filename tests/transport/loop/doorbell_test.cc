// The doorbell alone: silent while the shard is awake, heard when it sleeps.
// That no wake-up is lost between threads is shown in event_loop_wake_ups_test.cc.
#include "transport/loop/doorbell.h"

#include <memory>

#include <fcntl.h>
#include <poll.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Doorbell) {
  // Apart, because CppUTest's new knows no alignment.
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
  doorbell.acknowledge();  // nothing to take: it returns all the same
  doorbell.ring();
  CHECK(is_heard());
}

TEST(Doorbell, ItsDescriptorIsClosedOnExec) {
  CHECK((fcntl(doorbell.event_fd(), F_GETFD) & FD_CLOEXEC) != 0);
}
