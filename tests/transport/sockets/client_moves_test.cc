// Clients that go from one shard to another, between loops on threads of their own: who gets them,
// how many may be on their way to a shard that stands still, and the end.
#include "transport/sockets/client_moves.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "tests/support/patience.h"
#include "tests/transport/loop/running_loop.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

// A shard whose acceptor takes all that arrives.
struct Place {
  std::unique_ptr<RunningLoop> running = std::make_unique<RunningLoop>(0);
  MoveCounters counted;
  Counter open;
  ClientMoves moves;
  std::vector<AcceptedClient> arrived;
  std::atomic<uint32_t> arrived_count{0};
  std::atomic<uint32_t> settled_count{0};
  std::atomic<bool> is_held{false};
  LoopCall holding = {.function =
                          [](void* self) noexcept {
                            auto& its = *static_cast<Place*>(self);
                            its.is_held.store(true);
                            while (its.is_held.load()) sched_yield();
                          },
                      .context = this};

  explicit Place(uint64_t place_count) {
    moves.create(*running->loop, counted);
    moves.serve(
        {.arrived =
             [](void* self, const AcceptedClient& client) noexcept {
               auto& its = *static_cast<Place*>(self);
               its.arrived.push_back(client);
               its.open.add(1);
               its.arrived_count.fetch_add(1);
             },
         .settled =
             [](void* self) noexcept { static_cast<Place*>(self)->settled_count.fetch_add(1); },
         .context = this,
         .open = &open});
    moves.set_place_count(place_count);
  }
  // Its thread does nothing else until release().
  void hold() {
    running->loop->submit(holding);
    CHECK(eventually([&] { return is_held.load(); }));
  }
  void release() { is_held.store(false); }
  bool try_move(int fd, bool is_only = false) {
    bool has_moved = false;
    running->run_there([&] { has_moved = moves.try_move({.fd = fd}, is_only); });
    return has_moved;
  }
  uint64_t moving() const { return counted.connections_moving.read(); }
  bool has_settled() {
    return eventually([&] { return moving() == 0; });
  }
};

}  // namespace

TEST_GROUP(ClientMoves) {
  std::vector<std::unique_ptr<Place>> places;

  void add(uint64_t place_count) {
    places.push_back(std::make_unique<Place>(place_count));
    if (places.size() > 1) places[0]->moves.join(places.back()->moves);
  }
  Place& at(size_t index) { return *places[index]; }
  // All loops end before any of them is destroyed: they call one another.
  void teardown() override {
    for (const auto& place : places) {
      place->release();
      if (place->running != nullptr) place->running->loop->stop();
    }
    for (const auto& place : places) {
      if (place->running != nullptr) place->running->thread.join();
    }
    for (const auto& place : places) {
      if (place->running != nullptr) place->running->thread = std::thread([] {});
    }
    places.clear();
  }
};

TEST(ClientMoves, AClientStaysWhereThereIsRoom) {
  add(2);
  add(2);
  at(0).open.set(1);
  CHECK_FALSE(at(0).try_move(100));
  CHECK_EQUAL(0, at(0).counted.connections_moved.read());
}

TEST(ClientMoves, AFullShardGivesToTheOneWithTheFewest) {
  for (int i = 0; i < 3; ++i) add(2);
  at(0).open.set(2);
  at(1).open.set(1);
  CHECK(at(0).try_move(100));
  CHECK(eventually([&] { return at(2).arrived_count.load() == 1; }));
  LONGS_EQUAL(100, at(2).arrived[0].fd);
  CHECK(at(0).has_settled());
  CHECK_EQUAL(1, at(0).counted.connections_moved.read());
  CHECK(eventually([&] { return at(0).settled_count.load() == 1; }));
  // One each is left, and then nobody has room.
  CHECK(at(0).try_move(101));
  CHECK(at(0).has_settled());
  CHECK(at(0).try_move(102));
  CHECK(at(0).has_settled());
  CHECK_FALSE(at(0).try_move(103));
  LONGS_EQUAL(3, at(1).arrived_count.load() + at(2).arrived_count.load());
  CHECK_EQUAL(3, at(0).counted.connections_moved.read());
}

TEST(ClientMoves, TheTermsOfTheListenerGoWithTheClient) {
  add(0);
  add(1);
  int terms = 0;
  at(0).running->run_there([&] {
    at(0).moves.try_move({.fd = 100, .layer_use = LayerUse::kRequired, .terms = &terms}, false);
  });
  CHECK(eventually([&] { return at(1).arrived_count.load() == 1; }));
  CHECK(at(1).arrived[0].layer_use == LayerUse::kRequired);
  POINTERS_EQUAL(&terms, at(1).arrived[0].terms);
  CHECK(at(0).has_settled());
}

TEST(ClientMoves, ASocketOfOneShardServesAllEvenly) {
  add(10);
  add(10);
  CHECK_FALSE(at(0).try_move(100, true));  // both have none
  at(0).open.set(1);
  CHECK(at(0).try_move(101, true));
  CHECK(at(0).has_settled());
  CHECK_FALSE(at(0).try_move(102, true));  // both have one
  at(1).open.set(0);
  CHECK(at(0).try_move(103, true));
  CHECK(at(0).has_settled());
}

TEST(ClientMoves, AServerOfOneShardMovesNobody) {
  add(1);
  at(0).open.set(1);
  CHECK_FALSE(at(0).try_move(100));
  CHECK_FALSE(at(0).try_move(100, true));
}

TEST(ClientMoves, ThoseOnTheirWayHaveTheirPlaces) {
  add(0);
  add(3);
  at(1).hold();
  for (int i = 0; i < 3; ++i) CHECK(at(0).try_move(100 + i));
  CHECK_FALSE(at(0).try_move(103));
  CHECK_EQUAL(3, at(0).moving());
  CHECK_FALSE(at(0).moves.is_settled());
  LONGS_EQUAL(0, at(1).arrived_count.load());
  at(1).release();
  CHECK(at(0).has_settled());
  LONGS_EQUAL(3, at(1).arrived_count.load());
  for (size_t i = 0; i < 3; ++i) LONGS_EQUAL(100 + i, at(1).arrived[i].fd);
}

TEST(ClientMoves, AShardThatStandsStillHoldsNoMoreThanTheSlots) {
  add(0);
  add(1000);
  at(1).hold();
  for (uint32_t i = 0; i < ClientMoves::kSlotCount; ++i) CHECK(at(0).try_move(100));
  CHECK_FALSE(at(0).try_move(100));
  CHECK_EQUAL(ClientMoves::kSlotCount, at(0).moving());
  at(1).release();
  CHECK(at(0).has_settled());
  LONGS_EQUAL(ClientMoves::kSlotCount, at(1).arrived_count.load());
  CHECK(at(0).try_move(100));  // the slots serve again
  CHECK(at(0).has_settled());
}

TEST(ClientMoves, EachShardHasItsOwnSlots) {
  for (const uint64_t place_count : {0, 0, 1000}) add(place_count);
  at(2).hold();
  for (uint32_t i = 0; i < ClientMoves::kSlotCount; ++i) {
    CHECK(at(0).try_move(100));
    CHECK(at(1).try_move(200));
  }
  CHECK_FALSE(at(0).try_move(100));
  CHECK_FALSE(at(1).try_move(200));
  at(2).release();
  CHECK(at(0).has_settled());
  CHECK(at(1).has_settled());
  LONGS_EQUAL(2 * ClientMoves::kSlotCount, at(2).arrived_count.load());
}

// The loops end before the client has arrived.
TEST(ClientMoves, TheEndClosesWhatIsOnItsWay) {
  add(0);
  add(1);
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0);
  at(1).hold();
  CHECK(at(0).try_move(fd));
  at(1).running->loop->stop();
  at(1).release();
  at(1).running->thread.join();
  LONGS_EQUAL(0, at(1).arrived_count.load());
  at(1).running->thread = std::thread([] {});
  at(0).moves.end();
  LONGS_EQUAL(-1, fcntl(fd, F_GETFD));
}

// Shards that are full give to a third one at the same time. No client is lost or doubled.
TEST(ClientMoves, AllArriveThatWereGiven) {
  constexpr int kRounds = 500;
  for (const uint64_t place_count : {0, 0, 2 * kRounds}) add(place_count);
  std::vector<int> given;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t from = 0; from < 2; ++from) {
      const int fd = 2 * round + static_cast<int>(from);
      if (at(from).try_move(fd)) given.push_back(fd);
    }
  }
  CHECK(at(0).has_settled());
  CHECK(at(1).has_settled());
  LONGS_EQUAL(given.size(), at(2).arrived_count.load());
  std::vector<int> arrived;
  for (const AcceptedClient& client : at(2).arrived) arrived.push_back(client.fd);
  std::sort(arrived.begin(), arrived.end());
  CHECK(arrived == given);
}
