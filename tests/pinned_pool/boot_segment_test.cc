#include "pinned_pool/boot_segment.h"

#include <cstring>
#include <string>

#include "pinned_pool/audit.h"
#include "tests/support/death_test.h"
#include "tests/support/hugepages.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

BP_PROBE(BootSegmentOf24MiB) {
  BP_PROBE_CHECK(boot_segment_bytes() == 24 * kMiB);
  BP_PROBE_CHECK(process_pool().segment(0).bytes == 24 * kMiB);
}

BP_PROBE(BootSegmentOf12MiB) { BP_PROBE_CHECK(process_pool().segment(0).bytes == 12 * kMiB); }

BP_PROBE(BootSegmentOf8MiB) { BP_PROBE_CHECK(process_pool().segment(0).bytes == 8 * kMiB); }

BP_PROBE(BootSegmentOnHugepages) {
  const Segment& segment = process_pool().segment(0);
  BP_PROBE_CHECK(segment.bytes == 32 * kMiB && segment.page == PageSize::k2MiB);
  BP_PROBE_CHECK(boot_page() == PageSize::k2MiB);
  PoolMap map;
  process_pool().write_map(&map);
  auto audited = audit_maps(map, 0);
  BP_PROBE_CHECK(audited.ok() && audited.value().ok);
}

BP_PROBE(BootSegmentOf1GiB) { BP_PROBE_CHECK(process_pool().segment(0).bytes == kGiB); }

TEST_GROUP(BootSegment){
    // The program ends before main, which would report that there is no probe "none".
    void check_refused(const char* variable, const char* message){
        const test::Ended ended = test::run_fresh("none", {variable});
LONGS_EQUAL(2, ended.exit_code);
STRCMP_EQUAL(message, ended.text);
}
}
;

TEST(BootSegment, ExistsBeforeMainAndIsOneOnly) {
  Segment& segment = boot_segment();
  CHECK(&segment == &process_pool().segment(0));
  CHECK(&boot_segment() == &segment);
  STRCMP_EQUAL("boot", segment.owner.text);
  CHECK(segment.page == PageSize::k4KiB);
  CHECK(reinterpret_cast<uintptr_t>(segment.address) == kPoolBase);
}

TEST(BootSegment, HasTheSizeOfTheLinkedConstant) {
  // tests/main.cc defines bedplate_boot_bytes, which replaces the library's definition.
  CHECK(boot_segment_bytes() == bedplate_boot_bytes);
  CHECK(boot_segment().bytes == bedplate_boot_bytes);
}

TEST(BootSegment, EnvironmentGivesAnotherSize) {
  BP_CHECK_PROBE(BootSegmentOf24MiB, "BEDPLATE_BOOT_BYTES=24 MiB");
  BP_CHECK_PROBE(BootSegmentOf24MiB, "BEDPLATE_BOOT_BYTES=25165824");
}

TEST(BootSegment, SizeIsRoundedUp) {
  BP_CHECK_PROBE(BootSegmentOf12MiB, "BEDPLATE_BOOT_BYTES=9 MiB");
}

TEST(BootSegment, SmallestSizeGetsAProgramToItsMain) {
  BP_CHECK_PROBE(BootSegmentOf8MiB, "BEDPLATE_BOOT_BYTES=8 MiB");
}

TEST(BootSegment, WhatIsNoSizeStopsTheProgramBeforeMain) {
  check_refused("BEDPLATE_BOOT_BYTES=lots",
                "bedplate: reading the environment variable BEDPLATE_BOOT_BYTES: \"lots\" is not a "
                "size of segment 0; set it to a size from 8 MiB to 128 GiB, such as \"16 MiB\", or "
                "unset it\n");
  check_refused("BEDPLATE_BOOT_BYTES=",
                "bedplate: reading the environment variable BEDPLATE_BOOT_BYTES: \"\" is not a "
                "size of segment 0; set it to a size from 8 MiB to 128 GiB, such as \"16 MiB\", or "
                "unset it\n");
}

TEST(BootSegment, NonsenseIsRefusedAsASize) {
  for (const std::string text : {"0", "-1", "-16 MiB", "+16 MiB", "16MB", "16 mib", "1e9",
                                 "16.5 MiB", "0x1000000", " 16 MiB", "16 MiB ", "5 TiB", "129 GiB",
                                 "NaN", "9223372036854775807", "99999999999999999999999"}) {
    check_refused(
        ("BEDPLATE_BOOT_BYTES=" + text).c_str(),
        ("bedplate: reading the environment variable BEDPLATE_BOOT_BYTES: \"" + text +
         "\" is not a size of segment 0; set it to a size from 8 MiB to 128 GiB, such as \"16 "
         "MiB\", or unset it\n")
            .c_str());
  }
}

TEST(BootSegment, LiesOnThePagesThatTheEnvironmentSays) {
  const test::LentHugepages lent(16);
  if (!lent.are_there()) BP_SKIP("no 16 free hugepages of 2 MiB");
  BP_CHECK_PROBE(BootSegmentOnHugepages, "BEDPLATE_BOOT_BYTES=32 MiB",
                 "BEDPLATE_BOOT_PAGE_BYTES=2 MiB");
  // The size is rounded up to whole pages.
  if (hugepage_counts(PageSize::k1GiB).available_count == 0) return;
  BP_CHECK_PROBE(BootSegmentOf1GiB, "BEDPLATE_BOOT_PAGE_BYTES=1 GiB");
}

TEST(BootSegment, HugepagesThatAreNotThereStopTheProgramBeforeMain) {
  const test::Ended ended =
      test::run_fresh("none", {"BEDPLATE_BOOT_BYTES=128 GiB", "BEDPLATE_BOOT_PAGE_BYTES=2 MiB"});
  LONGS_EQUAL(1, ended.exit_code);
  STRCMP_CONTAINS("bedplate: taking 128 GiB for boot in pages of 2 MiB: ", ended.text);
  STRCMP_CONTAINS(" pages of 2 MiB are free, 65536 are needed: echo ", ended.text);
}

TEST(BootSegment, WhatIsNoSizeOfPagesIsRefused) {
  for (const std::string text : {"", "2", "4 MiB", "huge", "2M", "8 KiB"}) {
    check_refused(
        ("BEDPLATE_BOOT_PAGE_BYTES=" + text).c_str(),
        ("bedplate: reading the environment variable BEDPLATE_BOOT_PAGE_BYTES: \"" + text +
         "\" is not a page size; set it to \"4 KiB\", \"2 MiB\" or \"1 GiB\", or unset it\n")
            .c_str());
  }
}

TEST(BootSegment, TooSmallAndTooLargeAreRefused) {
  check_refused("BEDPLATE_BOOT_BYTES=4 MiB",
                "bedplate: reading the environment variable BEDPLATE_BOOT_BYTES: \"4 MiB\" is not "
                "a size of segment 0; set it to a size from 8 MiB to 128 GiB, such as \"16 MiB\", "
                "or unset it\n");
  check_refused(
      "BEDPLATE_BOOT_BYTES=129 GiB",
      "bedplate: reading the environment variable BEDPLATE_BOOT_BYTES: \"129 GiB\" is not "
      "a size of segment 0; set it to a size from 8 MiB to 128 GiB, such as \"16 MiB\", or unset "
      "it\n");
}
