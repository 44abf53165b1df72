// The C interface, called as C programs call it.
#include "apps/boot/bedplate.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <sys/resource.h>

#include "pinned_pool/pinned_pool.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using bedplate::test::is_aligned;

namespace {
volatile size_t too_many_bytes = size_t{1} << 40;
}

TEST_GROUP(CInterface) {};

TEST(CInterface, BlocksLieInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  void* block = bp_alloc(1000);
  CHECK(bp_contains(block, 1000));
  CHECK(bp_usable_bytes(block) >= 1000);
  bp_free(block);
}

TEST(CInterface, ReallocKeepsTheContent) {
  auto* text = static_cast<char*>(bp_realloc(nullptr, 6));
  std::memcpy(text, "anvil", 6);
  text = static_cast<char*>(bp_realloc(text, 100'000));
  STRCMP_EQUAL("anvil", text);
  bp_free(text);
}

TEST(CInterface, AlignsAsAsked) {
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    void* block = bp_alloc_aligned(alignment, 10);
    CHECK(is_aligned(block, alignment));
    bp_free(block);
  }
}

TEST(CInterface, ZeroBytesAreABlockAndNullIsNone) {
  void* block = bp_alloc(0);
  CHECK(block != nullptr);
  block = bp_realloc(block, 0);
  CHECK(block != nullptr);
  bp_free(block);
  bp_free(nullptr);
  LONGS_EQUAL(0, bp_usable_bytes(nullptr));
}

TEST(CInterface, RefusesAnAlignmentThatIsNone) {
  errno = 0;
  POINTERS_EQUAL(nullptr, bp_alloc_aligned(24, 10));
  LONGS_EQUAL(EINVAL, errno);
  errno = 0;
  POINTERS_EQUAL(nullptr, bp_alloc_aligned(0, 10));
  LONGS_EQUAL(EINVAL, errno);
}

TEST(CInterface, ExhaustionIsNullAndEnomem) {
  BP_SKIP_UNDER_SANITIZER();
  void* block = bp_alloc(10);
  for (const size_t bytes : {size_t{too_many_bytes}, size_t{SIZE_MAX}}) {
    errno = 0;
    POINTERS_EQUAL(nullptr, bp_alloc(bytes));
    LONGS_EQUAL(ENOMEM, errno);
    errno = 0;
    POINTERS_EQUAL(nullptr, bp_alloc_aligned(64, bytes));
    LONGS_EQUAL(ENOMEM, errno);
    errno = 0;
    POINTERS_EQUAL(nullptr, bp_realloc(block, bytes));
    LONGS_EQUAL(ENOMEM, errno);
  }
  bp_free(block);
}

TEST(CInterface, OtherMemoryIsNotThePools) {
  int on_the_stack = 0;
  LONGS_EQUAL(0, bp_contains(&on_the_stack, sizeof on_the_stack));
  LONGS_EQUAL(0, bp_contains(nullptr, 1));
}

TEST(CInterface, AuditOfASoundPoolIsOk) {
  char text[8] = {};
  LONGS_EQUAL(1, bp_audit(text, sizeof text));
  STRCMP_EQUAL("ok", text);
  LONGS_EQUAL(1, bp_audit(nullptr, 0));
}

BP_PROBE(CAuditOfADamagedPool) {
  auto created =
      bedplate::process_pool().create_segment("heap", 8192, bedplate::PageSize::k4KiB, 1);
  const bedplate::Segment& segment = *created.value();
  munmap(segment.address, 4096);
  char text[64];
  BP_PROBE_CHECK(bp_audit(text, sizeof text) == 0);
  BP_PROBE_CHECK(std::strcmp(text, "heap: 4096 of 8192 bytes are not mapped") == 0);
  BP_PROBE_CHECK(bp_audit(text, 5) == 0);
  BP_PROBE_CHECK(std::strcmp(text, "heap") == 0);
}

BP_PROBE(CAuditWithoutADescriptor) {
  const rlimit none = {0, 0};
  BP_PROBE_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  char text[128];
  BP_PROBE_CHECK(bp_audit(text, sizeof text) == -1);
  const char kBegin[] = "auditing the pool: opening /proc/self/smaps: Too many open files; ";
  BP_PROBE_CHECK(std::strncmp(text, kBegin, sizeof kBegin - 1) == 0);
}

TEST(CInterface, AuditSaysWhatIsWrong) { BP_CHECK_PROBE(CAuditOfADamagedPool); }

TEST(CInterface, AuditSaysWhyItCannotLook) { BP_CHECK_PROBE(CAuditWithoutADescriptor); }
