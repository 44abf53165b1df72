// A shard as an application meets it: its loop has its sockets, and sleeps in them.
#include "apps/boot/shard.h"

#include "platform/cpu.h"
#include "tests/support/death_test.h"
#include "tests/transport/loop/plain_sleeper.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Shard) {
  // Apart, because CppUTest's new knows no alignment.
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

// The sockets would be looked at when something else wakes the loop, and served late without a
// word.
TEST(Shard, SleepsInItsSocketsAndInNothingElse) {
  make(SocketBackendChoice::kEpoll);
  test::PlainSleeper other(shard->loop());
  BP_CHECK_DIES("a loop has one sleeper; a shard's is its sockets",
                shard->loop().set_sleeper(other));
}

TEST(Shard, SaysWhatItsSocketsAre) {
  make(SocketBackendChoice::kEpoll);
  STRCMP_EQUAL("epoll", shard->sockets().name());
}
