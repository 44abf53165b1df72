#include "platform/log.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::StderrCapture;

TEST_GROUP(Log){void teardown() override{set_log_level(LogLevel::kInfo);
}
}
;

TEST(Log, LinesNameTheProgramAndTheLevel) {
  StderrCapture capture;
  BP_LOG_INFO("serving %d", 7);
  BP_LOG_WARNING("nearly full");
  BP_LOG_ERROR("broken");
  STRCMP_EQUAL("bedplate: serving 7\nbedplate: warning: nearly full\nbedplate: error: broken\n",
               capture.finish().c_str());
}

TEST(Log, LeavesErrnoAlone) {
  StderrCapture capture;
  errno = ENOMEM;
  BP_LOG_INFO("that is why");
  LONGS_EQUAL(ENOMEM, errno);
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  StderrCapture capture;
  BP_LOG_DEBUG("not by default");
  set_log_level(LogLevel::kError);
  BP_LOG_WARNING("not now");
  BP_LOG_ERROR("this");
  set_log_level(LogLevel::kDebug);
  BP_LOG_DEBUG("and this");
  STRCMP_EQUAL("bedplate: error: this\nbedplate: and this\n", capture.finish().c_str());
}

TEST(Log, ErrorIsOneLineOfThreeParts) {
  StderrCapture capture;
  Error error;
  log_error(error.set_doing("doing").set_answer("answer").set_cure("cure"));
  STRCMP_EQUAL("bedplate: doing: answer; cure\n", capture.finish().c_str());
}

TEST(Log, OverlongLineIsCutOffAndStillEnds) {
  const std::string longest(5000, 'x');
  StderrCapture capture;
  BP_LOG_INFO("%s", longest.c_str());
  BP_LOG_INFO("next");
  const std::string text = capture.finish();
  LONGS_EQUAL(1024, text.find('\n') + 1);
  STRCMP_EQUAL("bedplate: next\n", text.c_str() + 1024);
}

TEST(Log, LongestErrorFitsIntoOneLine) {
  const std::string longest(5000, 'x');
  Error error;
  error.set_doing("%s", longest.c_str()).set_answer("%s", longest.c_str());
  error.set_cure("%send", std::string(sizeof error.cure - 4, 'c').c_str());
  StderrCapture capture;
  log_error(error);
  const std::string text = capture.finish();
  CHECK(text.ends_with("end\n"));
}

TEST(Log, LinesOfSeveralThreadsDoNotMix) {
  constexpr int kThreadCount = 4;
  constexpr int kLineCount = 200;
  StderrCapture capture;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([i] {
      const std::string body(100, static_cast<char>('a' + i));
      for (int line = 0; line < kLineCount; ++line) BP_LOG_INFO("%s", body.c_str());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = capture.finish();
  size_t count = 0;
  for (size_t start = 0; start < text.size(); ++count) {
    const size_t end = text.find('\n', start);
    CHECK(end != std::string::npos);
    const std::string line = text.substr(start, end - start);
    LONGS_EQUAL(110, line.size());
    CHECK(line.find_first_not_of(line.back(), 10) == std::string::npos);
    start = end + 1;
  }
  LONGS_EQUAL(kThreadCount * kLineCount, count);
}

BP_PROBE(LastWords) {
  BP_PROBE_CHECK(last_words().empty());
  BP_LOG_ERROR("not this");
  BP_PROBE_CHECK(last_words().empty());
  write_last_line("the reason\n", 11);
  write_last_line("another thread's\n", 17);
  BP_PROBE_CHECK(last_words() == "the reason");
}
TEST(Log, KeepsTheFirstOfTheLastLines) { BP_CHECK_PROBE(LastWords); }

BP_PROBE(LongLastWords) {
  const std::string longest(5000, 'x');
  write_last_line((longest + '\n').c_str(), longest.size() + 1);
  BP_PROBE_CHECK(last_words() == std::string(512, 'x'));
}
TEST(Log, KeepsTheBeginningOfALongLastLine) { BP_CHECK_PROBE(LongLastWords); }
