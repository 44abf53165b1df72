#include "transport/shm/loan_table_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint32_t kMember = 3;
constexpr int kMarkCount = 256;

}  // namespace

TEST_GROUP(LoanTable) {
  std::atomic<uint8_t> returned[1] = {};
  LoanTable table;
  std::byte block[1];
  LoanTable::Record records[4];

  void setup() override { table.create(returned); }
  void check_not_returned() {
    CHECK(table.try_lend(block, nullptr, kMember).loan == 0);
    LONGS_EQUAL(0, table.collect(records));
    LONGS_EQUAL(1, table.out_count());
  }
};

TEST(LoanTable, GivesBackWhatTheBorrowerHasMarked) {
  const LoanTable::Lent lent = table.try_lend(block, nullptr, kMember);
  LONGS_EQUAL(0, lent.loan);
  LONGS_EQUAL(0, table.collect(records));
  returned[0] = lent.mark;
  LONGS_EQUAL(1, table.collect(records));
  POINTERS_EQUAL(block, records[0].block);
  check_not_returned();
}

// Who is told `again` and tries until it succeeds cancels as often as it likes.
TEST(LoanTable, ManyCancelledLoansMakeNoneLookReturned) {
  for (int i = 1; i < kMarkCount; ++i) table.cancel(table.try_lend(block, nullptr, kMember).loan);
  check_not_returned();
}

TEST(LoanTable, ManyDeadBorrowersMakeNoLoanLookReturned) {
  for (int i = 1; i < kMarkCount; ++i) {
    CHECK(table.try_lend(block, nullptr, kMember).loan == 0);
    LONGS_EQUAL(1, table.collect_from(kMember, records));
  }
  check_not_returned();
}
