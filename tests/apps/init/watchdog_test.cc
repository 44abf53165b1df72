// The watchdog: errors of a device that is missing or is no watchdog, and a simulated device in a
// child. The guest tests have a loop that hangs in a whole appliance.
#include "apps/init/watchdog.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <linux/watchdog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "apps/init/image_settings.h"
#include "platform/log.h"
#include "tests/apps/configuration/configuration_support.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/support/patience.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::StderrCapture;

namespace {

std::string text_of(const Error& error) {
  char text[1024];
  return format_error(error, text, sizeof text);
}

// A simulated device. It may choose its own timeout, and counts how often it is fed.
struct Device {
  int timeout_s = 0;  // 0: the requested one
  bool can_be_set = true;
  int fed_count = 0;
};
constinit Device device = {};

long answer(const uint64_t* arguments) {
  auto* seconds = reinterpret_cast<int*>(arguments[2]);
  switch (arguments[1]) {
    case WDIOC_SETTIMEOUT:
      if (!device.can_be_set) return -EOPNOTSUPP;
      [[fallthrough]];
    case WDIOC_GETTIMEOUT:
      if (device.timeout_s != 0) *seconds = device.timeout_s;
      return 0;
    case WDIOC_KEEPALIVE: ++device.fed_count; return 0;
    default: return -ENOTTY;
  }
}

WatchdogSettings settings_for(const char* path) {
  WatchdogSettings settings;
  settings.enabled = true;
  settings.device = path;
  return settings;
}

// Starts a watchdog with the device `one` in a child, which then runs `steps`.
template <typename Steps>
test::Ended with_device(const Device& one, Steps steps) {
  return test::run_forked([&] {
    device = one;
    if (!test::answer_calls(SYS_ioctl, &answer)) _exit(99);
    Watchdog watchdog;
    watchdog.create(settings_for("/dev/null"));
    const auto started = watchdog.start();
    if (!started.ok()) log_error(started.error());
    _exit(steps(watchdog));
  });
}
test::Ended start_with(const Device& one) {
  return with_device(one, [](Watchdog&) { return 0; });
}

}  // namespace

TEST_GROUP(Watchdog){};

TEST(Watchdog, OneThatIsNotThereIsAnErrorIfRequired) {
  WatchdogSettings settings;
  settings.enabled = true;
  settings.device = "/dev/bp_no_watchdog";
  Watchdog watchdog;
  watchdog.create(settings);
  STRCMP_CONTAINS("starting the watchdog /dev/bp_no_watchdog with 30 s: No such file or directory; "
                  "name its driver",
                  text_of(watchdog.start().error()).c_str());
  settings.required = false;
  watchdog.create(settings);
  StderrCapture capture;
  CHECK(watchdog.start().ok());
  watchdog.feed();
  watchdog.stop();
  STRCMP_CONTAINS("No such file or directory", capture.finish().c_str());
}

TEST(Watchdog, WhatIsNoneIsRefused) {
  WatchdogSettings settings;
  settings.enabled = true;
  settings.device = "/dev/null";
  Watchdog watchdog;
  watchdog.create(settings);
  STRCMP_CONTAINS("Inappropriate ioctl", text_of(watchdog.start().error()).c_str());
}

TEST(Watchdog, NoneIsWantedByDefault) {
  Watchdog watchdog;
  watchdog.create(image_settings(parsed(file_with({}))).watchdog);
  CHECK(watchdog.start().ok());
  watchdog.feed();
}

TEST(Watchdog, TheDevicesOwnTimeoutIsTaken) {
  CHECK(start_with({}).said("watchdog /dev/null: resets the machine after 30 s\n"));
  CHECK(start_with({.timeout_s = 60}).said("after 60 s, as its driver chose"));
  CHECK(start_with({.timeout_s = 15, .can_be_set = false}).said("after 15 s, as its driver chose"));
}

TEST(Watchdog, LessThanHalfOfWhatIsAskedForIsRefused) {
  CHECK(start_with({.timeout_s = 14})
            .said("it resets the machine after 14 s, and this cannot be changed; set timeout_s in "
                  "[watchdog] to 14"));
  CHECK(start_with({.timeout_s = 1, .can_be_set = false}).said("[watchdog] to 2, or required"));
}

TEST(Watchdog, IsFedWhileEveryLoopTurns) {
  const auto ended = with_device({}, [](Watchdog& watchdog) {
    watchdog.feed();
    if (device.fed_count != 1) return 1;
    watchdog.feed();  // too early: this does not feed the device
    if (device.fed_count != 1) return 2;
    watchdog.keep_alive();
    if (device.fed_count != 2) return 3;
    watchdog.stop();
    watchdog.keep_alive();
    return device.fed_count == 2 ? 0 : 4;
  });
  LONGS_EQUAL(0, ended.exit_code);
}

TEST(Watchdog, EachLoopMarksTheTime) {
  auto watchdog = std::make_unique<Watchdog>();
  watchdog->create(settings_for("/dev/null"));
  EventLoopCounters counters;
  EventLoopOptions options;
  options.counters = &counters;
  EventLoop loop;
  CHECK(loop.create(options).ok());
  loop.timers().reserve_more(1);
  watchdog->loop_made(0, loop);
  CHECK(loop.timers().next_deadline_ns() == TimerQueue::kNever);
  watchdog->loop_begins(0);
  CHECK(loop.timers().next_deadline_ns() != TimerQueue::kNever);
}

// The loop never begins, so it has no thread. The thread that calls feed() crashes in its stead.
TEST(Watchdog, ALoopThatDoesNotTurnIsNotFedAndThenCrashes) {
  const test::Ended ended = test::run_forked([] {
    if (!test::answer_calls(SYS_ioctl, &answer)) _exit(99);
    static Watchdog watchdog;
    WatchdogSettings settings = settings_for("/dev/null");
    settings.timeout_s = 2;
    watchdog.create(settings);
    EventLoop loop;
    watchdog.loop_made(0, loop);
    if (!watchdog.start().ok()) _exit(98);
    test::eventually([] {
      watchdog.feed();
      return false;
    });
  });
  // At least one second, and more if this process got no core.
  constexpr char kHungry[] = "no longer fed: the event loop of shard 0 has been stuck for ";
  CHECK(ended.said(kHungry));
  CHECK(std::atoi(std::strstr(ended.text, kHungry) + sizeof kHungry - 1) >= 1);
  CHECK(ended.said("the event loop of shard 0 hangs, and its thread handles no signal"));
  LONGS_EQUAL(SIGABRT, ended.signal);
}

TEST(Watchdog, ItsEndIsMeant) {
  char path[] = "/tmp/bp_watchdog_XXXXXX";
  const Fd file(mkstemp(path));
  const int outcome = test::exit_code_of([&] {
    if (!test::answer_calls(SYS_ioctl, &answer)) return 99;
    Watchdog watchdog;
    watchdog.create(settings_for(path));
    if (!watchdog.start().ok()) return 1;
    watchdog.stop();
    return 0;
  });
  char letter = 0;
  const ssize_t got = pread(file.number(), &letter, 1, 0);
  unlink(path);
  LONGS_EQUAL(0, outcome);
  LONGS_EQUAL(1, got);
  LONGS_EQUAL('V', letter);
}
