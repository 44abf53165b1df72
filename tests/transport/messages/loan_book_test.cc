// The book of loans, in both orders, compared with a model.
#include "transport/messages/loan_book_datapath.h"

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "tests/support/death_test.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Lent : LoanRecord {
  uint32_t extra = 0;
};

using Newest = LoanBook<Lent, LoanOrder::kLastFirst>;
using Round = LoanBook<Lent, LoanOrder::kRound>;

}  // namespace

TEST_GROUP(LoanBook) {
  static constexpr uint32_t kCount = 70;  // more than a word has bits

  std::byte blocks[kCount] = {};

  // After every step the next loan is the first of `model`, which lists the free loans.
  template <typename Book>
  void play(LoanOrder order) {
    test::Seed seed;
    std::mt19937_64 random(seed.value());
    Book book;
    book.create(kCount);
    std::deque<uint32_t> model;
    for (uint32_t loan = 0; loan < kCount; ++loan) model.push_back(loan);
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < 20000; ++i) {
      CHECK_TEXT(book.is_full() == model.empty(), seed.text());
      if (random() % 2 == 0) {
        const uint32_t loan = book.try_lend(&blocks[i % kCount], nullptr);
        CHECK_TEXT(loan == (model.empty() ? Book::kNone : model.front()), seed.text());
        if (model.empty()) continue;
        book[loan].extra = i;
        out.push_back(loan);
        model.pop_front();
      } else if (!out.empty()) {
        std::swap(out[random() % out.size()], out.back());
        const uint32_t loan = out.back();
        out.pop_back();
        if (random() % 4 == 0) {
          book.cancel(loan);
          model.push_front(loan);
          continue;
        }
        const Lent was = book.end(loan);
        POINTERS_EQUAL(&blocks[was.extra % kCount], was.block);
        if (order == LoanOrder::kRound) model.push_back(loan);
        else model.push_front(loan);
      }
      CHECK_TEXT(book.out_count() == out.size() && book.is_valid(), seed.text());
      CHECK_TEXT(
          std::all_of(out.begin(), out.end(), [&](uint32_t one) { return book.is_out(one); }),
          seed.text());
    }
  }
};

TEST(LoanBook, LendsTheLastFirst) { play<Newest>(LoanOrder::kLastFirst); }
TEST(LoanBook, LendsAllInTheirTurn) { play<Round>(LoanOrder::kRound); }

TEST(LoanBook, KeepsWhatItsProviderNotesOfALoan) {
  Newest book;
  book.create(1);
  const uint32_t loan = book.try_lend(blocks, nullptr);
  book[loan].extra = 7;
  book.cancel(loan);
  LONGS_EQUAL(loan, book.try_lend(blocks + 1, nullptr));
  LONGS_EQUAL(7, book[loan].extra);
  POINTERS_EQUAL(blocks + 1, book.end(loan).block);
}

TEST(LoanBook, CallsThoseThatAreOutUntilItIsEnough) {
  Newest book;
  book.create(kCount);
  for (uint32_t i = 0; i < kCount; ++i) book.try_lend(blocks, nullptr);
  uint32_t ended = 0;
  book.for_each_out([&](uint32_t loan) noexcept {
    if (loan % 2 == 0) return true;
    book.end(loan);
    return ++ended < 10;
  });
  LONGS_EQUAL(10, ended);
  LONGS_EQUAL(kCount - 10, book.out_count());
  uint32_t called = 0;
  book.for_each_out([&](uint32_t) noexcept { return ++called > 0; });
  LONGS_EQUAL(kCount - 10, called);
}

TEST(LoanBook, EndsALoanOnce) {
  Newest book;
  book.create(kCount);
  const uint32_t loan = book.try_lend(blocks, nullptr);
  book.end(loan);
  BP_CHECK_DIES("assertion failed: ", book.end(loan));
  BP_CHECK_DIES("assertion failed: ", book.cancel(loan));
  BP_CHECK_DIES("assertion failed: ", book.cancel(kCount));
}

TEST(LoanBook, FinishingALoanTellsItsOwner) {
  struct Noted : Completion {
    int count = 0;
    Outcome outcome = Outcome::kDone;
  } noted;
  noted.call = [](Completion& self, Outcome how) noexcept {
    ++static_cast<Noted&>(self).count;
    static_cast<Noted&>(self).outcome = how;
  };
  finish_loan({blocks, &noted}, Outcome::kUnknown);
  LONGS_EQUAL(1, noted.count);
  CHECK(noted.outcome == Outcome::kUnknown);
}
