// The findings of `doctor` about appliances that have ended. tests/system/seen_at_a_glance_test.py
// tests those about running ones.
#include "apps/program/counters/alerts.h"

#include "tests/apps/counters/counters_file_fixture.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP_BASE(Alerts, CountersFileFixture){void crash(const char* text){
    leave_behind("demo", [text](CountersHeader& header) { record_crash(header, text); });
}
}
;

TEST(Alerts, AnApplianceThatWasKilledHasNoRecord) {
  leave_behind("demo");
  const auto found = appliance_findings(directory);
  LONGS_EQUAL(1, found.size());
  CHECK(found[0].verdict == Verdict::kWarning && found[0].name == "appliance demo");
  STRCMP_EQUAL(
      "it has ended without the record of a crash: it was killed, or memory ran out (dmesg)",
      found[0].value.c_str());
  remove_all("demo");
}

TEST(Alerts, ACrashIsToldWithItsReasonAndCause) {
  crash("a.cc:1: assertion failed: x\nsignal 6 (ABRT) in thread main\n  called from /init 0x1\n");
  const auto found = appliance_findings(directory);
  LONGS_EQUAL(1, found.size());
  CHECK(found[0].verdict == Verdict::kWarning);
  STRCMP_EQUAL("it has crashed, at 2026-01-01 00:00:00 UTC: a.cc:1: assertion failed: x; "
               "signal 6 (ABRT) in thread main",
               found[0].value.c_str());
  STRCMP_CONTAINS("`bedplate stats` shows the calls", found[0].cure.c_str());
  remove_all("demo");
}

TEST(Alerts, TheCrashOfAnEarlierRunIsToldUntilItsFileIsRemoved) {
  crash("signal 11 (SEGV) in thread main\n");
  {
    Running running(directory, "demo");
    running.publish();
    const auto found = appliance_findings(directory);
    LONGS_EQUAL(2, found.size());
    CHECK(found[0].verdict == Verdict::kGood && found[1].verdict == Verdict::kWarning);
    STRCMP_EQUAL("appliance demo", found[1].name.c_str());
    STRCMP_EQUAL("an earlier run has crashed, at 2026-01-01 00:00:00 UTC: signal 11 (SEGV) in "
                 "thread main",
                 found[1].value.c_str());
    STRCMP_CONTAINS(("`bedplate stats --from " + crashed("demo") + "` shows the calls").c_str(),
                    found[1].cure.c_str());
  }
  LONGS_EQUAL(1, appliance_findings(directory).size());  // it has ended since
  LONGS_EQUAL(0, unlink(crashed("demo").c_str()));
  LONGS_EQUAL(0, appliance_findings(directory).size());
  remove_all("demo");
}

TEST(Alerts, AForeignFileIsNoCrash) {
  mkdir(directory.c_str(), 0755);
  Fd(open(crashed("demo").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)).close();
  LONGS_EQUAL(0, appliance_findings(directory).size());
  remove_all("demo");
}
