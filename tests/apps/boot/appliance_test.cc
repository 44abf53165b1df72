// Refusals of an appliance before it reads its configuration. tests/system tests whole appliances.
#include "apps/boot/appliance.h"

#include "alloc/added_heap.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

// The added heap is segment 1, where the segments of the pool's plan would begin.
BP_PROBE(BootsBesideAddedHeap) {
  BP_PROBE_CHECK(add_heap(4 * kMiB, PageSize::k4KiB).ok());
  BP_PROBE_CHECK(Appliance(Configuration{}).boot() == 1);
}

TEST_GROUP(Appliance){};

TEST(Appliance, DoesNotBootOnceTheProgramHasAddedToItsHeap) {
  BP_SKIP_UNDER_SANITIZER();
  const test::Ended ended = test::run_fresh("BootsBesideAddedHeap");
  LONGS_EQUAL(0, ended.exit_code);
  STRCMP_CONTAINS(
      "bedplate: booting an appliance: this program has added memory to its heap (add_heap, "
      "bp_add_heap), at the addresses of the pool's other segments; raise [pool] bytes "
      "instead\n",
      ended.text);
}
