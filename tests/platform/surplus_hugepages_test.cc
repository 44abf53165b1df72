// Reserving free hugepages, and more hugepages than any machine has. tests/system tests surplus
// pages that the kernel makes.
#include "platform/surplus_hugepages.h"

#include <cerrno>
#include <cstring>

#include <sys/resource.h>

#include "tests/support/death_test.h"
#include "tests/support/hugepages.h"
#include "tests/support/progress_news.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(SurplusHugepages){};

TEST(SurplusHugepages, HavingThemMadeSaysHowFarItIs) {
  const test::LentHugepages lent(2);
  if (!lent.are_there()) BP_SKIP("2 MiB hugepages cannot be reserved on this machine");
  const test::ProgressNews news;
  CHECK(try_hugepages(PageSize::k2MiB, 2).ok());
  LONGS_EQUAL(1, news.count_of("making hugepages: 4 MiB of 4 MiB (100 %)"));
}

TEST(SurplusHugepages, APromiseThatNobodyCanKeepIsRefused) {
  if (!hugepage_counts(PageSize::k2MiB).supported) BP_SKIP("this kernel has no hugepages");
  const auto refused = try_hugepages(PageSize::k2MiB, uint64_t{1} << 30);
  CHECK(!refused.ok());
  STRCMP_EQUAL("reserving 1073741824 surplus hugepages", refused.error().doing);
}

TEST(SurplusHugepages, AnErrorHasTheReasonOfTheFirstCallThatFailed) {
  LONGS_EQUAL(0, test::exit_code_of([] {
                rlimit files = {};
                if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 1;
                files.rlim_cur = 0;
                if (setrlimit(RLIMIT_NOFILE, &files) != 0) return 2;
                const auto refused = try_hugepages(PageSize::k2MiB, 2);
                if (refused.ok()) return 3;
                return std::strcmp(refused.error().answer, std::strerror(EMFILE)) == 0 ? 0 : 4;
              }));
}
