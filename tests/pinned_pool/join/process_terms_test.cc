// The terms that the owner sends to a process: they arrive unchanged, empty terms grant nothing,
// and nonsense is refused.
#include "pinned_pool/join/process_terms.h"

#include <cstring>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

using Verbs = ProcessTerms::Verbs;

Result<ProcessTerms> handed_over(const ProcessTerms& terms, size_t bytes = sizeof(ProcessTerms)) {
  return read_process_terms(std::as_bytes(std::span(&terms, 1)).first(bytes), "ann");
}

void refused(const ProcessTerms& terms) {
  const auto read = handed_over(terms);
  CHECK(!read.ok());
  STRCMP_EQUAL("reading what the owner of the pool grants ann", read.error().doing);
  STRCMP_EQUAL("its RDMA device is not valid", read.error().answer);
  STRCMP_EQUAL("run both programs from the same release of Bedplate", read.error().cure);
}

}  // namespace

TEST_GROUP(ProcessTerms) { ProcessTerms terms{"mlx5_0", 2}; };

TEST(ProcessTerms, ArriveAsTheyWereSaid) {
  const ProcessTerms read = handed_over(terms).take();
  CHECK(read.verbs == Verbs::kDevice);
  STRCMP_EQUAL("mlx5_0", read.device);
  LONGS_EQUAL(2, read.port);
  terms = {};
  terms.verbs = Verbs::kNoDevice;
  CHECK(handed_over(terms).value().verbs == Verbs::kNoDevice);
}

TEST(ProcessTerms, AnOwnerThatSaysNothingGrantsNothing) {
  CHECK(handed_over(terms, 0).value().verbs == Verbs::kNotPlanned);
}

TEST(ProcessTerms, NonsenseIsRefused) {
  const auto cut = handed_over(terms, sizeof terms - 1);
  CHECK(!cut.ok());
  STRCMP_EQUAL("it has 71 bytes, not 72", cut.error().answer);
  const ProcessTerms good = terms;
  terms.verbs = static_cast<Verbs>(3);
  refused(terms);
  terms = good;
  terms.port = 0;
  refused(terms);
  terms = good;
  terms.device[0] = '\0';
  refused(terms);
  std::strcpy(terms.device, "\x1b[2J");
  refused(terms);
  std::memset(terms.device, 'x', sizeof terms.device);
  refused(terms);
}
