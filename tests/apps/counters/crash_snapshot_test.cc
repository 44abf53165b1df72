// The record of a crash in a counters file: written by the handler of crashes, read by anybody.
#include "apps/counters/crash_snapshot.h"

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>

#include "platform/crash_handler.h"
#include "tests/apps/counters/counters_file_fixture.h"
#include "tests/support/death_test.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(CrashSnapshot, CountersFileFixture){
    // The record in the file that leave_behind() leaves.
    std::optional<SeenCrash> seen(const std::function<void(CountersHeader&)>& spoil){
        leave_behind("demo", spoil);
auto opened = CountersReader::open(directory, "demo");
CHECK(opened.ok());
const auto crash = opened.value().crash();
remove_all("demo");
return crash;
}
}
;

TEST(CrashSnapshot, HasTheLinesAndTheTime) {
  const auto crash = seen([](CountersHeader& header) {
    record_crash(header, "a.cc:1: assertion failed: x\nsignal 6 (ABRT) in thread main\n"
                         "  called from /init 0x1\n  called from /init 0x2\n");
  });
  CHECK(crash.has_value());
  LONGS_EQUAL(4, crash->lines.size());
  STRCMP_EQUAL("a.cc:1: assertion failed: x", crash->lines[0].c_str());
  STRCMP_EQUAL("  called from /init 0x2", crash->lines[3].c_str());
  STRCMP_EQUAL("2026-01-01 00:00:00 UTC", crash->time().c_str());
  STRCMP_EQUAL("a.cc:1: assertion failed: x; signal 6 (ABRT) in thread main",
               crash->summary().c_str());
}

TEST(CrashSnapshot, AnApplianceThatWasKilledHasNone) {
  CHECK(!seen([](CountersHeader&) {}).has_value());
}

// The header of an older build ends where the first records begin.
TEST(CrashSnapshot, AnOlderBuildHasNone) {
  CHECK(!seen([](CountersHeader& header) {
           record_crash(header, "text\n");
           header.crash.count = 0;
         }).has_value());
}

TEST(CrashSnapshot, ARecordThatLeadsOutOfTheFileIsNone) {
  const auto spoiled = [this](const std::function<void(CountersHeader&)>& spoil) {
    CHECK(!seen([&](CountersHeader& header) {
             record_crash(header, "text\n");
             spoil(header);
           }).has_value());
  };
  spoiled([](CountersHeader& header) { header.crash.count = 2; });
  spoiled([](CountersHeader& header) { header.crash.offset += 8; });
  spoiled([](CountersHeader& header) { header.crash.offset = ~uint64_t{0} - 7; });
  spoiled([](CountersHeader& header) { header.crash.record_bytes = 8; });
}

TEST(CrashSnapshot, AForeignTextIsCutAndMadePrintable) {
  const std::string longest(CrashRecord::kTextBytesMax, 'x');
  const auto crash = seen([&](CountersHeader& header) { record_crash(header, longest); });
  LONGS_EQUAL(1, crash->lines.size());
  LONGS_EQUAL(1024, crash->lines[0].size());
  const auto hostile = seen([](CountersHeader& header) {
    record_crash(header, "\033[2J\xff\n", ~uint64_t{0});
    auto* begin = reinterpret_cast<std::byte*>(&header) + header.crash.offset;
    reinterpret_cast<CrashRecord*>(begin)->text_bytes.store(~uint64_t{0});
  });
  STRCMP_EQUAL("?[2J?", hostile->lines[0].c_str());
  CHECK(hostile->time().ends_with(" UTC"));
}

// The crash comes before the counters are complete.
BP_PROBE(CrashWithACountersFile) {
  static constexpr CrashStep kSteps[] = {{&record_cause}, {&record_calls}};
  signal(SIGFPE, SIG_DFL);  // a sanitizer has a handler there
  BP_PROBE_CHECK(catch_crashes(kSteps).ok());
  Running running(std::getenv("BP_TEST_DIRECTORY"), "demo");
  running.gets().hits.set(5);
  running.file.keep_crashes();
  raise(SIGFPE);
}

TEST(CrashSnapshot, TheHandlerOfCrashesWritesItAndPublishesTheFile) {
  const Ended ended = run_fresh("CrashWithACountersFile", {"BP_TEST_DIRECTORY=" + directory});
  LONGS_EQUAL(SIGFPE, ended.signal);
  auto opened = CountersReader::open(directory, "demo");
  CHECK(opened.ok());
  CHECK(!opened.value().is_running());
  CHECK_EQUAL(5, hits_of(opened.value()));
  const auto crash = opened.value().crash();
  CHECK(crash.has_value());
  CHECK(crash->summary().starts_with("signal 8 (FPE) in thread "));
  CHECK(crash->lines.size() > 1 && crash->lines.back().starts_with("  called from "));
  unlink((directory + "/demo.lock").c_str());
  remove_all("demo");
}

BP_PROBE(CrashAfterTheCountersFile) {
  static constexpr CrashStep kSteps[] = {{&record_cause}, {&record_calls}};
  signal(SIGFPE, SIG_DFL);
  BP_PROBE_CHECK(catch_crashes(kSteps).ok());
  {
    Running running(std::getenv("BP_TEST_DIRECTORY"), "demo");
    running.file.keep_crashes();
  }
  raise(SIGFPE);
}

TEST(CrashSnapshot, ACrashAfterTheFileWasRemovedIsOnlyLogged) {
  const Ended ended = run_fresh("CrashAfterTheCountersFile", {"BP_TEST_DIRECTORY=" + directory});
  LONGS_EQUAL(SIGFPE, ended.signal);
  CHECK_TEXT(ended.said("crash: signal 8 (FPE) in thread "), ended.text);
  CHECK(!exists(directory));
}
