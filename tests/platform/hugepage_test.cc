#include "platform/hugepage.h"

#include <cstdio>
#include <string>

#include <sys/mman.h>
#include <linux/memfd.h>

#include "platform/file.h"
#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"
#include "tests/support/hugepages.h"
#include "tests/support/progress_news.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::LentHugepages;

TEST_GROUP(Hugepage){};

TEST(Hugepage, SizesAreBytes) {
  CHECK(page_bytes(PageSize::k4KiB) == 4096);
  CHECK(page_bytes(PageSize::k2MiB) == 2097152);
  CHECK(page_bytes(PageSize::k1GiB) == 1073741824);
  CHECK_FALSE(is_huge(PageSize::k4KiB));
  CHECK(is_huge(PageSize::k2MiB));
  CHECK(is_huge(PageSize::k1GiB));
}

TEST(Hugepage, CountFileIsTheKernels) {
  STRCMP_EQUAL("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
               hugepage_count_file(PageSize::k2MiB).path);
  STRCMP_EQUAL("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
               hugepage_count_file(PageSize::k1GiB).path);
}

TEST(Hugepage, SmallPagesHaveNoCounts) {
  BP_CHECK_DIES("assertion failed: is_huge(page)", (void)hugepage_counts(PageSize::k4KiB));
  BP_CHECK_DIES("assertion failed: is_huge(page)", (void)hugepage_count_file(PageSize::k4KiB));
}

// Pages are reserved one GiB at a time, so that progress can be reported.
TEST(Hugepage, ManyAreReservedByAndBy) {
  test::FakeRoot root;
  root.write("/count", "100\n");
  const std::string path = root.path() + "/count";
  test::ProgressNews news;
  CHECK(write_hugepage_count(path.c_str(), PageSize::k2MiB, 1500).ok());
  CHECK(read_number_file(path.c_str()) == 1500U);
  LONGS_EQUAL(2, news.texts.size());
  LONGS_EQUAL(1, news.count_of("reserving hugepages: 1 GiB of 2.7 GiB (36 %)"));
  LONGS_EQUAL(1, news.count_of("reserving hugepages: 2 GiB of 2.7 GiB (73 %)"));
  CHECK(write_hugepage_count(path.c_str(), PageSize::k1GiB, 1503).ok());
  CHECK(read_number_file(path.c_str()) == 1503U);
  const std::string gone = root.path() + "/gone";
  const auto refused = write_hugepage_count(gone.c_str(), PageSize::k2MiB, 8);
  STRCMP_EQUAL(("writing 8 into " + gone).c_str(), refused.ok() ? "" : refused.error().doing);
}

TEST(Hugepage, AvailableArePagesThatNobodyHasARightTo) {
  const LentHugepages lent(2);
  if (!lent.are_there()) BP_SKIP("2 MiB hugepages cannot be reserved on this machine");
  const HugepageCounts before = hugepage_counts(PageSize::k2MiB);
  CHECK(before.supported);
  CHECK(before.total_count >= 2);
  CHECK(before.available_count >= 2);
  // A mapping reserves its pages before it takes them.
  constexpr uint64_t kBytes = 2 * page_bytes(PageSize::k2MiB);
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MFD_HUGE_2MB, -1, 0);
  CHECK(mapped != MAP_FAILED);
  const uint64_t promised = hugepage_counts(PageSize::k2MiB).available_count;
  *static_cast<volatile char*>(mapped) = 1;
  const uint64_t taken = hugepage_counts(PageSize::k2MiB).available_count;
  munmap(mapped, kBytes);
  LONGS_EQUAL(before.available_count - 2, promised);
  LONGS_EQUAL(promised, taken);
  LONGS_EQUAL(before.available_count, hugepage_counts(PageSize::k2MiB).available_count);
}
