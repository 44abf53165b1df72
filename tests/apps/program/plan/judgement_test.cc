// tests/system/command_line_test.py judges whole machines.
#include "apps/program/plan/judgement.h"

#include "alloc/interception.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Judgement){};

// `doctor --fix` judges the machine again.
TEST(Judgement, AnotherHeapThanExpectedIsTheOnlyProblemAlsoTheNextTime) {
  const bool is_pool = interception_decision().backing == HeapBacking::kPool;
  Judgement judged;
  judged.configuration.emplace();
  judged.plan.emplace();
  judged.configuration->alloc.expect =
      is_pool ? HeapExpectation::kOrdinary : HeapExpectation::kPool;
  judge_machine(&judged);
  LONGS_EQUAL(1, judged.problems.size());
  STRCMP_CONTAINS("[alloc] expect", judged.problems[0].doing);
}
