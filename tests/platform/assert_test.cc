#include "platform/assert.h"

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

TEST_GROUP(Assert){};

TEST(Assert, TrueConditionIsEvaluatedOnceAndGoesOn) {
  int evaluated = 0;
  BP_ASSERT(++evaluated == 1);
  LONGS_EQUAL(1, evaluated);
}

TEST(Assert, FalseConditionNamesItselfAndAborts) {
  volatile int two = 2;
  BP_CHECK_DIES("assertion failed: two == 3; this is a defect in the program", BP_ASSERT(two == 3));
}

TEST(Assert, FailureNamesFileAndLine) {
  BP_CHECK_DIES("bedplate: some/file.cc:42: assertion failed: what",
                bedplate::assertion_failed("some/file.cc", 42, "what"));
}

TEST(Assert, OverlongTextIsCutOffAndStillAborts) {
  static char what[2000];
  for (char& letter : what) letter = 'w';
  what[sizeof what - 1] = '\0';
  BP_CHECK_DIES("assertion failed: wwww", bedplate::assertion_failed("file.cc", 1, what));
  BP_CHECK_DIES("wwww\n", bedplate::assertion_failed("file.cc", 1, what));
}

TEST(Assert, ABrokenContractIsToldInTheWordsOfItsCheck) {
  volatile int planned = 2;
  BP_REQUIRE(planned == 2, "never printed");
  BP_CHECK_DIES(
      "bedplate: broken contract: 3 are used, and 2 are planned: Plan::count\n",
      BP_REQUIRE(planned == 3, "3 are used, and %d are planned: %s", planned, "Plan::count"));
}

TEST(Assert, AnOverlongContractIsCutOffAndStillAborts) {
  static char what[2000];
  for (char& letter : what) letter = 'w';
  what[sizeof what - 1] = '\0';
  BP_CHECK_DIES("broken contract: wwww", bedplate::contract_broken("%s", what));
  BP_CHECK_DIES("wwww\n", bedplate::contract_broken("%s", what));
}

TEST(Assert, ContractsOfDebugBuildsAreNotEvaluatedInOthers) {
  int evaluated = 0;
  BP_DREQUIRE(++evaluated > 0, "never printed");
  LONGS_EQUAL(BP_DEBUG, evaluated);
#if BP_DEBUG
  BP_CHECK_DIES("broken contract: it is not 7", BP_DREQUIRE(evaluated == 7, "it is not %d", 7));
#endif
}

TEST(Assert, DebugCheckExistsInDebugBuildsOnly) {
  int evaluated = 0;
  BP_DCHECK(++evaluated > 0);
  LONGS_EQUAL(BP_DEBUG, evaluated);
#if BP_DEBUG
  BP_CHECK_DIES("assertion failed: evaluated == 7", BP_DCHECK(evaluated == 7));
  BP_CHECK_DIES("assertion failed: evaluated == 7", BP_DCHECK_SLOW(evaluated == 7));
#endif
}

namespace {

struct Switch {
  bool is_valid() const { return ++look_count, is_right; }
  bool is_right = true;
  mutable int look_count = 0;
};

}  // namespace

TEST(Assert, AChangeIsLookedAtBeforeAndAfterInDebugBuildsOnly) {
  Switch one;
  { BP_KEEPS_VALID(one); }
  LONGS_EQUAL(2 * BP_DEBUG, one.look_count);
#if BP_DEBUG
  BP_CHECK_DIES("assert_test.cc:", {
    BP_KEEPS_VALID(one);
    one.is_right = false;
  });
  BP_CHECK_DIES("is_valid() after a change", {
    BP_KEEPS_VALID(one);
    one.is_right = false;
  });
  BP_CHECK_DIES("is_valid() before a change", {
    one.is_right = false;
    BP_KEEPS_VALID(one);
  });
#endif
}
