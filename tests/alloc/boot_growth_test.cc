// tests/system/boot_budget_test.py tests the growth with configurations of any size.
#include "alloc/boot_growth.h"

#include "pinned_pool/boot_segment.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Whether segment 0 has grown.
bool grows() {
  const uint64_t before = boot_segment().bytes;
  let_boot_heap_grow();
  const bool is_there = grow_boot_heap(kMiB);
  end_boot_growth();
  BP_PROBE_CHECK(is_there == (boot_segment().bytes > before));
  return is_there;
}

}  // namespace

BP_PROBE(SegmentZeroGrows) { BP_PROBE_CHECK(grows()); }

BP_PROBE(SegmentZeroStaysBesideOrdinaryMemory) { BP_PROBE_CHECK(!grows()); }

TEST_GROUP(BootGrowth){};

TEST(BootGrowth, IsForAHeapInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(SegmentZeroGrows);
  BP_CHECK_PROBE(SegmentZeroStaysBesideOrdinaryMemory, "BEDPLATE_LEAVE_PINNED=no");
}
