#include "pinned_pool/layout.h"

#include "pinned_pool/pinned_pool.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

bool is_in_range(uintptr_t address) {
  return in_pool_range(reinterpret_cast<const void*>(address));
}

}  // namespace

TEST_GROUP(Layout){};

TEST(Layout, RangeIsHalfOpen) {
  CHECK(is_in_range(kPoolBase));
  CHECK(is_in_range(kPoolBase + kPoolSpanBytes - 1));
  CHECK_FALSE(is_in_range(kPoolBase - 1));
  CHECK_FALSE(is_in_range(kPoolBase + kPoolSpanBytes));
  CHECK_FALSE(is_in_range(0));
  CHECK_FALSE(is_in_range(UINTPTR_MAX));
}

TEST(Layout, StackAndStaticDataAreOutside) {
  const int on_stack = 0;
  static int in_data = 0;
  CHECK_FALSE(in_pool_range(&on_stack));
  CHECK_FALSE(in_pool_range(&in_data));
  CHECK_FALSE(in_pool_range("a literal"));
  CHECK(in_pool_range(process_pool().segment(0).address));
}

TEST(Layout, SegmentTakesWholeRegions) {
  LONGS_EQUAL(1, regions_of(1));
  LONGS_EQUAL(1, regions_of(kRegionBytes));
  LONGS_EQUAL(2, regions_of(kRegionBytes + 1));
  LONGS_EQUAL(kRegionCountMax, regions_of(kPoolSpanBytes));
}
