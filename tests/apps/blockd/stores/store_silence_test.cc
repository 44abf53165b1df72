// The control thread detects stores that have stopped answering.
#include "apps/blockd/stores/store_silence.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using Change = StoreSilence::Change;

TEST_GROUP(StoreSilence) {
  StoreCounters counters;
  StoreSilence silence;

  Change look(uint64_t second) { return silence.look(counters, second * kNsPerSecond); }
};

TEST(StoreSilence, AStoreThatHasNothingToDoIsNotSilent) {
  CHECK(look(1) == Change::kNone);
  CHECK(look(1000) == Change::kNone);
  CHECK_EQUAL(0, counters.silent_ns.read());
  counters.operations.set(1);  // since the previous look()
  CHECK(look(1003) == Change::kNone);
  CHECK_EQUAL(3 * kNsPerSecond, counters.silent_ns.read());
}

TEST(StoreSilence, AStoreThatIsBusyAndAnswersIsNotSilent) {
  counters.operations.set(64);
  for (uint64_t second = 1; second < 100; second += 4) {
    counters.operations_ended.add(1);
    CHECK(look(second) == Change::kNone);
    CHECK_EQUAL(0, counters.silent_ns.read());
  }
}

TEST(StoreSilence, ASilentStoreIsToldOnceAndOnceMoreWhenItAnswers) {
  CHECK(look(10) == Change::kNone);
  counters.operations.set(2);
  CHECK(look(14) == Change::kNone);
  CHECK(look(15) == Change::kFellSilent);
  CHECK(look(40) == Change::kNone);
  CHECK_EQUAL(30 * kNsPerSecond, counters.silent_ns.read());
  counters.operations_ended.add(1);
  counters.operations.set(1);
  CHECK(look(41) == Change::kAnswers);
  CHECK_EQUAL(0, counters.silent_ns.read());
  CHECK(look(42) == Change::kNone);
  CHECK(look(46) == Change::kFellSilent);
  counters.operations.set(0);
  CHECK(look(47) == Change::kAnswers);
}
