// Progress reports of long work: their times, texts and recipients. The test moves the clock.
#include "platform/progress.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "platform/terminal_bar.h"
#include "platform/units.h"
#include "tests/support/progress_news.h"
#include "tests/support/stderr_capture.h"
#include "tests/support/stderr_terminal.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using test::ProgressNews;
using test::StderrCapture;
using test::StderrTerminal;

namespace {

constexpr uint64_t kBeginNs = 1000 * kNsPerSecond;

std::atomic<uint64_t> time_ns{kBeginNs};
uint64_t read_time() noexcept { return time_ns; }

void pass_ms(uint64_t ms) { time_ns += ms * kNsPerMs; }

ProgressOptions of(uint64_t total_bytes, uint64_t wait_max_ns = 0) {
  return {.total_bytes = total_bytes, .wait_max_ns = wait_max_ns, .now_ns = &read_time};
}

}  // namespace

TEST_GROUP(Progress) {
  const std::string wipe = kWipeLine;

  void setup() override { time_ns = kBeginNs; }
  // A failed test leaves its listener set.
  void teardown() override { set_progress_listener(nullptr); }

  static std::string text_of(const Progress& progress) {
    char text[256];
    progress.write_text(text, sizeof text);
    return text;
  }
};

TEST(Progress, SaysHowMuchHowFastAndForHowLongYet) {
  const StderrCapture capture;
  Progress progress("taking memory", of(16 * kGiB));
  STRCMP_EQUAL("taking memory: 0 bytes of 16 GiB (0 %), 0 bytes/s", text_of(progress).c_str());
  pass_ms(2000);
  progress.add(4 * kGiB);
  STRCMP_EQUAL("taking memory: 4 GiB of 16 GiB (25 %), 2 GiB/s, 6 s left",
               text_of(progress).c_str());
  pass_ms(2000);
  progress.add(3584 * kMiB);
  STRCMP_EQUAL("taking memory: 7.5 GiB of 16 GiB (46 %), 1.9 GiB/s, 5 s left",
               text_of(progress).c_str());
  progress.add(kTiB);  // the report never exceeds the total
  STRCMP_EQUAL("taking memory: 16 GiB of 16 GiB (100 %), 4 GiB/s, 0 s left",
               text_of(progress).c_str());
}

TEST(Progress, AnAmountIsInTheUnitThatItIsNearest) {
  const StderrCapture capture;
  Progress progress("taking", of(kGiB));
  pass_ms(1000);
  progress.add(1023 * kKiB);
  STRCMP_CONTAINS("taking: 1023 KiB of 1 GiB (0 %), 1023 KiB/s", text_of(progress).c_str());
  progress.add(1020);
  STRCMP_CONTAINS("taking: 1.0 MiB of 1 GiB (0 %), 1.0 MiB/s", text_of(progress).c_str());
}

TEST(Progress, LongTimesAreSaidInMinutesAndHours) {
  const StderrCapture capture;
  Progress progress("reserving", of(1000 * kMiB));
  pass_ms(10'000);
  progress.add(50 * kMiB);
  STRCMP_CONTAINS(", 3 min left", text_of(progress).c_str());
  pass_ms(3'590'000);
  STRCMP_CONTAINS(", 19 h 0 min left", text_of(progress).c_str());
}

TEST(Progress, AWaitSaysForHowLongItHasBeenAndMayBe) {
  Progress progress("waiting for a monitor", of(0, 60 * kNsPerSecond));
  Progress endless("waiting", of(0));
  pass_ms(12'000);
  STRCMP_EQUAL("waiting for a monitor: for 12 s now, 60 s at most", text_of(progress).c_str());
  STRCMP_EQUAL("waiting: for 12 s now", text_of(endless).c_str());
}

TEST(Progress, WithoutATerminalThereIsALineEveryFiveSeconds) {
  StderrCapture capture;
  Progress progress("taking memory", of(16 * kGiB));
  for (int i = 0; i < 49; ++i) {
    pass_ms(100);
    progress.add(128 * kMiB);
  }
  STRCMP_EQUAL("", capture.text().c_str());
  pass_ms(100);
  progress.add(128 * kMiB);
  const std::string first =
      "bedplate: taking memory: 6.3 GiB of 16 GiB (39 %), 1.3 GiB/s, 8 s left\n";
  STRCMP_EQUAL(first.c_str(), capture.text().c_str());
  pass_ms(4900);
  progress.look();
  STRCMP_EQUAL(first.c_str(), capture.text().c_str());
  pass_ms(100);
  progress.look();
  STRCMP_CONTAINS("39 %), 640 MiB/s, 16 s left\n", capture.finish().substr(first.size()).c_str());
}

TEST(Progress, ATerminalHasABarAfterASecond) {
  StderrTerminal terminal(80);
  {
    Progress progress("taking", of(4 * kMiB));
    for (int i = 0; i < 9; ++i) {
      pass_ms(100);
      progress.add(kMiB / 10);
    }
    STRCMP_EQUAL("", terminal.take().c_str());
    pass_ms(100);
    progress.add(4 * kMiB / 10);
    STRCMP_EQUAL(
        (wipe + "#######.................  taking: 1.3 MiB of 4 MiB (32 %), 1.3 MiB/s, 2 s "
                "left")
            .c_str(),
        terminal.take().c_str());
    pass_ms(199);
    progress.look();
    STRCMP_EQUAL("", terminal.take().c_str());
    pass_ms(1);
    progress.look();
    STRCMP_CONTAINS("(32 %)", terminal.take().c_str());
  }
  STRCMP_EQUAL(wipe.c_str(), terminal.take().c_str());
  CHECK_FALSE(is_bar_announced());
}

TEST(Progress, WorkOfLessThanASecondLeavesTheTerminalAlone) {
  StderrTerminal terminal(80);
  {
    Progress progress("taking", of(4 * kMiB));
    for (int i = 0; i < 9; ++i) {
      pass_ms(110);
      progress.add(kMiB / 10);
    }
  }
  STRCMP_EQUAL("", terminal.take().c_str());
  CHECK_FALSE(is_bar_announced());
}

TEST(Progress, ADumbTerminalHasLines) {
  StderrTerminal terminal(80, "dumb");
  {
    Progress progress("waiting", of(0));
    pass_ms(4999);
    progress.look();
    STRCMP_EQUAL("", terminal.take().c_str());
    pass_ms(1);
    progress.look();
  }
  STRCMP_EQUAL("bedplate: waiting: for 5 s now\n", terminal.take().c_str());
}

TEST(Progress, AListenerHearsEachSecondAndWhetherItGoesOn) {
  ProgressNews news(kNsPerSecond);
  StderrCapture capture;
  Progress progress("taking", of(4 * kMiB));
  progress.add(kMiB);
  LONGS_EQUAL(0, news.texts.size());
  pass_ms(1000);
  progress.look();
  progress.look();
  LONGS_EQUAL(1, news.texts.size());
  STRCMP_EQUAL("taking: 1 MiB of 4 MiB (25 %), 1 MiB/s, 3 s left", news.texts[0].c_str());
  CHECK(news.patiences_ns[0] == Progress::kPieceNsMax);
  pass_ms(1000);
  progress.look();  // no progress since the last report
  CHECK(news.patiences_ns[1] == 0);
  progress.add(kMiB);
  pass_ms(1000);
  progress.look();
  CHECK(news.patiences_ns[2] == Progress::kPieceNsMax);
  STRCMP_EQUAL("", capture.finish().c_str());
}

TEST(Progress, AListenerHearsHowLongAWaitMayGoOn) {
  const StderrCapture capture;
  ProgressNews news(kNsPerSecond);
  Progress progress("waiting", of(0, 30 * kNsPerSecond));
  pass_ms(10'000);
  progress.look();
  CHECK(news.patiences_ns[0] == 20 * kNsPerSecond + Progress::kPieceNsMax);
  pass_ms(25'000);
  progress.look();  // the wait is longer than its maximum
  CHECK(news.patiences_ns[1] == 0);
}

// Several threads make each report only once, and no thread's progress is lost.
TEST(Progress, ManyThreadsReportAsOne) {
  ProgressNews news(kNsPerSecond);
  StderrCapture capture;
  Progress progress("taking", of(4000));
  pass_ms(5000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&progress] {
      for (int piece = 0; piece < 1000; ++piece) progress.add(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  LONGS_EQUAL(1, news.texts.size());
  const std::string text = capture.finish();
  LONGS_EQUAL(1, std::count(text.begin(), text.end(), '\n'));
  STRCMP_EQUAL("taking: 3.9 KiB of 3.9 KiB (100 %), 800 bytes/s, 0 s left",
               text_of(progress).c_str());
}
