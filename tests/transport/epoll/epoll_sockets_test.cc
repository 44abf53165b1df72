// Tests of epoll alone: edges, which the kernel reports once, the queue of sockets to try, and
// whole milliseconds. tests/transport/sockets/stream_sockets_test.cc tests both backends.
#include <memory>

#include <sys/socket.h>

#include "tests/transport/sockets/stream_sockets_fixture.h"

using namespace bedplate;

TEST_GROUP_BASE(EpollEdges, SocketsFixture) {
  struct Pair {
    Ours ours;
    Fd fd, peer;
    std::byte byte = {};
  };

  std::unique_ptr<StreamSockets> make() override { return make_epoll_sockets(); }

  void connect(Pair & pair) {
    int fds[2];
    LONGS_EQUAL(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
    pair.fd = Fd(fds[0]);
    pair.peer = Fd(fds[1]);
    attach(pair.ours, fds[0]);
  }
  void detach(Pair & pair) {
    sockets->abort(pair.ours.socket);
    CHECK(run_until([&] { return !pair.ours.socket.receive.is_in_flight; }));
    sockets->detach(pair.ours.socket);
  }
  void receive_byte(Pair & pair) { receive(pair.ours, &pair.byte, 1); }
  static void say(Pair & pair, size_t bytes = 1) {
    LONGS_EQUAL(bytes, write_now(pair.peer.number(), pattern_bytes(0, bytes).data(), bytes));
  }
  // Polls until no socket is left to try.
  void come_to_rest() {
    for (int i = 0; i < 4; ++i) sockets->poll(64);
  }
  uint64_t calls() { return counters.system_calls.read(); }
};

TEST(EpollEdges, WhatWouldBlockIsNotTriedAgainUntilTheKernelTellsOfIt) {
  CHECK(is_available());
  Pair pair;
  connect(pair);
  receive_byte(pair);
  come_to_rest();
  const uint64_t before = calls();
  for (int i = 0; i < 100; ++i) LONGS_EQUAL(0, sockets->poll(64));
  CHECK_EQUAL(before + 100, calls());  // each poll only asks the kernel for events
  say(pair);
  LONGS_EQUAL(1, sockets->poll(64));
  LONGS_EQUAL(1, pair.ours.receive_count);
  detach(pair);
}

// The kernel reports an edge once, so a second sleep would lose it.
TEST(EpollEdges, AnEdgeThatEndedASleepIsHandledByTheNextPoll) {
  CHECK(is_available());
  Pair pair;
  connect(pair);
  receive_byte(pair);
  come_to_rest();
  say(pair);
  sockets->sleep_until(monotonic_ns() + test::kPatienceNs);
  const uint64_t before = calls();
  sockets->sleep_until(monotonic_ns() + test::kPatienceNs);
  CHECK_EQUAL(before, calls());
  LONGS_EQUAL(1, sockets->poll(64));
  LONGS_EQUAL(1, pair.ours.receive_count);
  detach(pair);
}

TEST(EpollEdges, ASocketThatWasDetachedAfterTheSleepIsNotTouched) {
  CHECK(is_available());
  Pair stays, leaves;
  connect(stays);
  connect(leaves);
  receive_byte(stays);
  come_to_rest();
  say(stays);
  say(leaves);
  sockets->sleep_until(monotonic_ns() + test::kPatienceNs);  // both have an event
  sockets->detach(leaves.ours.socket);
  leaves.ours.socket.can_receive = false;  // its memory now belongs to another object
  LONGS_EQUAL(1, sockets->poll(64));
  CHECK(!leaves.ours.socket.can_receive);
  LONGS_EQUAL(1, stays.ours.receive_count);
  detach(stays);
}

TEST(EpollEdges, APollTriesAsManyAsItsBudgetInTheOrderOfTheirStart) {
  CHECK(is_available());
  Pair pairs[3];
  for (Pair& pair : pairs) {
    connect(pair);
    say(pair);
    receive_byte(pair);
  }
  for (int tried = 0; tried <= 3; ++tried) {
    for (int i = 0; i < 3; ++i) LONGS_EQUAL(i < tried, pairs[i].ours.receive_count);
    LONGS_EQUAL(tried < 3, sockets->poll(1));
  }
  for (Pair& pair : pairs) detach(pair);
}

TEST(EpollEdges, WhatACallbackStartsWaitsForTheNextPoll) {
  CHECK(is_available());
  struct Reader {
    Pair pair;
    StreamSockets* sockets = nullptr;
    iovec piece = {};
    int count = 0;
    void start() noexcept {
      piece = {&pair.byte, 1};
      pair.ours.socket.receive.pieces = &piece;
      pair.ours.socket.receive.piece_count = 1;
      pair.ours.socket.receive.min_bytes = 1;
      sockets->receive(pair.ours.socket);
    }
  } reader;
  reader.sockets = sockets.get();
  connect(reader.pair);
  reader.pair.ours.socket.receive.context = &reader;
  reader.pair.ours.socket.receive.completed = [](void* self, int64_t) noexcept {
    auto& it = *static_cast<Reader*>(self);
    if (++it.count <= 5) it.start();
  };
  say(reader.pair, 5);
  reader.start();
  for (int polls = 1; polls <= 5; ++polls) {
    LONGS_EQUAL(1, sockets->poll(64));
    LONGS_EQUAL(polls, reader.count);
  }
  detach(reader.pair);
}

// The kernel counts in milliseconds. If a sleep ended before its deadline, many sleeps of no
// duration would follow. The kernel may end any single sleep early, as when it freezes the process.
TEST(EpollEdges, ASleepThatNothingEndsLastsUntilItsDeadline) {
  CHECK(is_available());
  for (const uint64_t wanted_ns : {kNsPerMs / 10, kNsPerMs + kNsPerMs / 2, 3 * kNsPerMs - 1}) {
    bool has_lasted = false;
    for (int attempt = 0; attempt < 10 && !has_lasted; ++attempt) {
      const uint64_t deadline_ns = monotonic_ns() + wanted_ns;
      sockets->sleep_until(deadline_ns);
      has_lasted = monotonic_ns() >= deadline_ns;
      sockets->poll(64);  // takes what ended the sleep
    }
    CHECK(has_lasted);
  }
  const uint64_t before = calls();
  sockets->sleep_until(monotonic_ns());  // the deadline has passed
  CHECK_EQUAL(before, calls());
}
