// A shard as applications see it: its loop polls its sockets, and sleeps in them.
#include "apps/boot/shard.h"

#include "platform/cpu.h"
#include "tests/support/death_test.h"
#include "tests/transport/loop/plain_sleeper.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Shard) {
  // Allocated on their own, because CppUTest's operator new ignores alignment.
  std::unique_ptr<ShardCounters> counters = std::make_unique<ShardCounters>();
  std::unique_ptr<Shard> shard = std::make_unique<Shard>();

  void make(SocketBackendChoice choice) {
    ShardOptions options;
    options.settings.name = "main";
    while (!cpu_is_usable(options.settings.cpu)) ++options.settings.cpu;
    options.event_loop.sockets = choice;
    options.counters = counters.get();
    CHECK(shard->create(options).ok());
  }
};

// With another sleeper, the sockets could not wake the loop, and would be served late without an
// error.
TEST(Shard, SleepsInItsSocketsAndInNothingElse) {
  make(SocketBackendChoice::kEpoll);
  test::PlainSleeper other(shard->loop());
  BP_CHECK_DIES("a loop is given a second sleeper, and a shard's is its sockets",
                shard->loop().set_sleeper(other));
}

TEST(Shard, SaysWhatItsSocketsAre) {
  make(SocketBackendChoice::kEpoll);
  STRCMP_EQUAL("epoll", shard->sockets().name());
}
