// The terms that the owner sends to a joining process: they arrive as sent, may be narrowed, and
// invalid terms are refused.
#include "transport/shm/membership/group_terms.h"

#include <vector>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr auto kXpmem = SingleCopyKind::kXpmem;
constexpr auto kCma = SingleCopyKind::kCma;
constexpr auto kKnem = SingleCopyKind::kKnem;

using Kinds = std::vector<SingleCopyKind>;

Kinds order_of(const GroupTerms& terms) {
  return {terms.single_copy().begin(), terms.single_copy().end()};
}

Result<GroupTerms> handed_over(const GroupTerms& terms, size_t bytes = sizeof(GroupTerms)) {
  return read_group_terms(std::as_bytes(std::span(&terms, 1)).first(bytes), "main");
}

void refused(const GroupTerms& terms) {
  const auto read = handed_over(terms);
  CHECK(!read.ok());
  STRCMP_EQUAL("attaching to group main", read.error().doing);
  STRCMP_EQUAL("its order of single copy is not valid", read.error().answer);
  STRCMP_EQUAL("run both programs from the same release of Bedplate", read.error().cure);
}

}  // namespace

TEST_GROUP(GroupTerms) { GroupShape shape; };

TEST(GroupTerms, ArriveAsTheyWereSaid) {
  shape.kind = GroupKind::kMesh;
  shape.member_count = 17;
  for (const Kinds& order : {Kinds{}, Kinds{kCma}, Kinds{kKnem, kXpmem, kCma}}) {
    auto read = handed_over(GroupTerms(shape, order));
    CHECK(read.ok());
    CHECK(read.value().shape == shape);
    CHECK(order_of(read.value()) == order);
  }
}

TEST(GroupTerms, WhoDoesNotTrustHasNoSingleCopy) {
  shape.kind = GroupKind::kExchange;
  LONGS_EQUAL(0, GroupTerms(shape, kSingleCopyKinds).single_copy_count);
}

TEST(GroupTerms, AreNarrowedAndNeverWidened) {
  const auto narrowed = [&](const Kinds& order, const Kinds& allowed) {
    GroupTerms terms(shape, order);
    terms.restrict_single_copy(allowed);
    return order_of(terms);
  };
  CHECK(narrowed({kKnem, kXpmem, kCma}, {kXpmem, kCma, kKnem}) == Kinds({kKnem, kXpmem, kCma}));
  CHECK(narrowed({kKnem, kXpmem, kCma}, {kCma, kKnem}) == Kinds({kKnem, kCma}));
  CHECK(narrowed({kCma}, {kXpmem, kKnem}).empty());
  CHECK(narrowed({kCma}, {kXpmem, kCma}) == Kinds({kCma}));
  CHECK(narrowed({}, {kXpmem, kCma, kKnem}).empty());
  CHECK(narrowed({kCma, kKnem}, {}).empty());
}

TEST(GroupTerms, OfAnotherLengthAreRefused) {
  const auto read = handed_over(GroupTerms(shape, {}), sizeof(GroupShape));
  CHECK(!read.ok());
  STRCMP_EQUAL("its layout has 52 bytes, not 68", read.error().answer);
}

TEST(GroupTerms, AnOrderThatMakesNoSenseIsRefused) {
  GroupTerms terms(shape, Kinds{kCma});
  terms.single_copy_count = 4;
  refused(terms);
  terms.single_copy_count = UINT32_MAX;
  refused(terms);
  terms = GroupTerms(shape, Kinds{kCma, kKnem});
  terms.single_copy_kinds[1] = kCma;
  refused(terms);
  terms.single_copy_kinds[1] = static_cast<SingleCopyKind>(3);
  refused(terms);
  terms.single_copy_count = 1;  // the bytes behind the order are not read
  CHECK(handed_over(terms).ok());
  terms.shape.kind = GroupKind::kExchange;
  refused(terms);
}
