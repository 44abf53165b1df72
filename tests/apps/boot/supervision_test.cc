// The messages to the supervisor of an appliance. The test counts the rounds of the shards itself.
#include "apps/boot/supervision.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "platform/file.h"
#include "tests/support/fake_root.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Supervision) {
  static constexpr uint64_t kWatchdogNs = 8 * kNsPerSecond;

  test::FakeRoot root;
  const std::string path = root.path() + "/notify";
  Fd listener;
  std::array<Counter, 2> rounds;
  std::array<Doorbell, 2> bells;
  Supervision supervision;
  uint64_t now_ns = 100 * kNsPerSecond;

  void teardown() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC"}) unsetenv(name);
  }
  void listen() {
    listener = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    unlink(path.c_str());
    LONGS_EQUAL(0, bind(listener.number(), reinterpret_cast<sockaddr*>(&address), sizeof address));
  }
  void open(bool has_watchdog = true) {
    listen();
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
    if (has_watchdog) {
      setenv("WATCHDOG_USEC", std::to_string(kWatchdogNs / kNsPerUs).c_str(), 1);
    }
    supervision.open();
    CHECK(supervision.is_there());
    for (size_t i = 0; i < rounds.size(); ++i) {
      CHECK(bells[i].create().ok());
      supervision.watch(rounds[i], bells[i]);
    }
  }
  // Returns all messages to the supervisor since the last call.
  std::string heard() {
    std::string all;
    char text[1024];
    for (;;) {
      const ssize_t bytes = recv(listener.number(), text, sizeof text, 0);
      if (bytes < 0) return all;
      all += (all.empty() ? "" : " | ") + std::string(text, static_cast<size_t>(bytes));
    }
  }
  void turn_after(uint64_t ns, uint32_t alerts = 0) {
    now_ns += ns;
    supervision.turn(alerts, now_ns);
  }
  void move_all() {
    for (Counter& each : rounds) each.add(1);
  }
};

TEST(Supervision, TellsEachStepAndGivesItTime) {
  open();
  supervision.begins("taking memory");
  supervision.begins("starting the shard", "main");
  STRCMP_EQUAL("EXTEND_TIMEOUT_USEC=120000000\nSTATUS=booting: taking memory | "
               "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=booting: main: starting the shard",
               heard().c_str());
}

TEST(Supervision, LongWorkTellsHowFarItIs) {
  open();
  static std::atomic<uint64_t> time_ns{kNsPerSecond};
  Progress progress(
      "taking", {.total_bytes = 4 * kMiB, .now_ns = []() noexcept -> uint64_t { return time_ns; }});
  time_ns += kNsPerSecond;
  progress.add(kMiB);
  STRCMP_EQUAL("EXTEND_TIMEOUT_USEC=60000000\nSTATUS=taking: 1 MiB of 4 MiB (25 %), 1 MiB/s, 3 s "
               "left",
               heard().c_str());
  time_ns += kNsPerSecond;
  progress.look();  // no progress since the last report
  STRCMP_EQUAL("STATUS=taking: 1 MiB of 4 MiB (25 %), 512 KiB/s, 6 s left", heard().c_str());
}

TEST(Supervision, TellsThatItServesAndHowManyAlertsThereAre) {
  open(false);
  supervision.serves(now_ns);
  STRCMP_EQUAL("READY=1 | STATUS=ready", heard().c_str());
  turn_after(kNsPerSecond);
  STRCMP_EQUAL("", heard().c_str());
  turn_after(kNsPerSecond, 1);
  turn_after(kNsPerSecond, 1);
  STRCMP_EQUAL("STATUS=ready; 1 needs a look: bedplate top", heard().c_str());
  turn_after(kNsPerSecond, 3);
  STRCMP_EQUAL("STATUS=ready; 3 need a look: bedplate top", heard().c_str());
  turn_after(kNsPerSecond, 0);
  STRCMP_EQUAL("STATUS=ready", heard().c_str());
  supervision.drains(30 * kNsPerSecond);
  turn_after(kNsPerSecond, 4);
  STRCMP_EQUAL("STOPPING=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS=draining", heard().c_str());
}

TEST(Supervision, TheWatchdogIsAnsweredOnceForEveryHalfOfItsTime) {
  open();
  CHECK(supervision.turn_ns_max() == kWatchdogNs / 8);
  supervision.serves(now_ns);
  heard();
  for (int i = 0; i < 3; ++i) {
    move_all();
    turn_after(kNsPerSecond);
    STRCMP_EQUAL("WATCHDOG=1", heard().c_str());
    for (int more = 0; more < 3; ++more) {
      move_all();
      turn_after(kNsPerSecond);
      STRCMP_EQUAL("", heard().c_str());
    }
  }
}

TEST(Supervision, OneShardThatIsStuckIsEnoughToSayNothing) {
  open();
  supervision.serves(now_ns);
  heard();
  for (int i = 0; i < 100; ++i) {
    rounds[0].add(1);
    turn_after(kNsPerSecond);
  }
  STRCMP_EQUAL("", heard().c_str());
  rounds[1].add(1);  // the shard was only slow
  turn_after(kNsPerSecond);
  STRCMP_EQUAL("WATCHDOG=1", heard().c_str());
}

// A loop without work makes no rounds, so the supervision wakes it to make one.
TEST(Supervision, AShardThatSleepsIsWokenToAnswer) {
  open();
  for (Doorbell& bell : bells) bell.announce_sleep();
  supervision.serves(now_ns);
  for (Doorbell& bell : bells) {
    pollfd rung = {bell.event_fd(), POLLIN, 0};
    LONGS_EQUAL(1, poll(&rung, 1, 0));
    bell.acknowledge();
    bell.announce_awake();
  }
  heard();
  turn_after(kNsPerSecond);
  STRCMP_EQUAL("", heard().c_str());
  move_all();
  turn_after(kNsPerSecond);
  STRCMP_EQUAL("WATCHDOG=1", heard().c_str());
}

// If turn() was not called for far longer than the watchdog's time and no shard moved, the whole
// process was stopped.
TEST(Supervision, AProcessThatWasStoppedGoesOn) {
  open();
  supervision.serves(now_ns);
  move_all();
  turn_after(kNsPerSecond);
  heard();
  turn_after(100 * kWatchdogNs);
  STRCMP_EQUAL("", heard().c_str());
  move_all();
  turn_after(kNsPerSecond);
  STRCMP_EQUAL("WATCHDOG=1", heard().c_str());
}

TEST(Supervision, WhatWasNotTakenIsSaidAgain) {
  open();
  listener.close();
  supervision.serves(now_ns);
  move_all();
  turn_after(kNsPerSecond, 2);
  listen();
  turn_after(kNsPerSecond, 2);
  STRCMP_EQUAL("READY=1 | STATUS=ready; 2 need a look: bedplate top | WATCHDOG=1", heard().c_str());
  turn_after(kNsPerSecond, 2);
  STRCMP_EQUAL("", heard().c_str());
}

TEST(Supervision, OneThatCannotBeHadIsAWarning) {
  setenv("NOTIFY_SOCKET", path.c_str(), 1);
  test::StderrCapture capture;
  supervision.open();
  CHECK_FALSE(supervision.is_there());
  supervision.begins("taking memory");
  supervision.serves(now_ns);
  supervision.drains(0);
  STRCMP_EQUAL(
      ("bedplate: warning: looking for the supervisor at NOTIFY_SOCKET=" + path +
       ": No such file or directory; it gets no notifications; unset NOTIFY_SOCKET, or set it "
       "to a socket that this user may write to\n")
          .c_str(),
      capture.finish().c_str());
}
