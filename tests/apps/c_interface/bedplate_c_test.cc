// The C interface, called as C programs call it: this file is also valid C, for Unity.
//
// Here it is compiled as C++, with Unity's macros mapped onto CppUTest (tests/support). Under Unity
// it is linked as a program whose malloc is the pool's.
#include "apps/c_interface/bedplate.h"
#include "platform/sanitized_build.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unity_fixture.h"

#if defined(BP_ADDRESS_SANITIZER) || defined(BP_THREAD_SANITIZER)
#define NEEDS_THE_POOLS_HEAP() TEST_IGNORE_MESSAGE("malloc is the sanitizer's in this build")
#else
#define NEEDS_THE_POOLS_HEAP() ((void)0)
#endif

static const size_t kPage = 4096;

// Volatile: the compiler would refuse a constant of this size.
static volatile size_t too_many_bytes = (size_t)1 << 40;

static char block_of_the_program[100];

static int is_aligned(const void* block, size_t alignment) {
  return (uintptr_t)block % alignment == 0;
}

TEST_GROUP(CInterface);

TEST_SETUP(CInterface) { errno = 0; }

TEST_TEAR_DOWN(CInterface) {}

TEST(CInterface, BlocksLieInThePool) {
  NEEDS_THE_POOLS_HEAP();
  void* block = bp_alloc(1000);
  TEST_ASSERT_TRUE(bp_contains(block, 1000));
  TEST_ASSERT_TRUE(bp_usable_bytes(block) >= 1000);
  bp_free(block);
}

TEST(CInterface, ReallocKeepsTheContent) {
  char* text = (char*)bp_realloc(NULL, 6);
  memcpy(text, "anvil", 6);
  text = (char*)bp_realloc(text, 100000);
  TEST_ASSERT_EQUAL_STRING("anvil", text);
  bp_free(text);
}

TEST(CInterface, AlignsAsAsked) {
  for (size_t alignment = 1; alignment <= kPage; alignment *= 2) {
    void* block = bp_alloc_aligned(alignment, 10);
    TEST_ASSERT_NOT_NULL(block);
    TEST_ASSERT_TRUE(is_aligned(block, alignment));
    bp_free(block);
  }
}

TEST(CInterface, ZeroBytesAreABlockAndNullIsNone) {
  void* block = bp_alloc(0);
  TEST_ASSERT_NOT_NULL(block);
  block = bp_realloc(block, 0);
  TEST_ASSERT_NOT_NULL(block);
  bp_free(block);
  bp_free(NULL);
  TEST_ASSERT_EQUAL_size_t(0, bp_usable_bytes(NULL));
}

TEST(CInterface, RefusesAnAlignmentThatIsNone) {
  TEST_ASSERT_NULL(bp_alloc_aligned(24, 10));
  TEST_ASSERT_EQUAL_INT(EINVAL, errno);
  errno = 0;
  TEST_ASSERT_NULL(bp_alloc_aligned(0, 10));
  TEST_ASSERT_EQUAL_INT(EINVAL, errno);
}

TEST(CInterface, ExhaustionIsNullAndEnomem) {
  NEEDS_THE_POOLS_HEAP();
  const size_t too_many[] = {too_many_bytes, SIZE_MAX};
  void* block = bp_alloc(10);
  for (int i = 0; i < 2; ++i) {
    errno = 0;
    TEST_ASSERT_NULL(bp_alloc(too_many[i]));
    TEST_ASSERT_EQUAL_INT(ENOMEM, errno);
    errno = 0;
    TEST_ASSERT_NULL(bp_alloc_aligned(64, too_many[i]));
    TEST_ASSERT_EQUAL_INT(ENOMEM, errno);
    errno = 0;
    TEST_ASSERT_NULL(bp_realloc(block, too_many[i]));
    TEST_ASSERT_EQUAL_INT(ENOMEM, errno);
  }
  bp_free(block);
}

TEST(CInterface, FreeLeavesErrnoAlone) {
  void* block = bp_alloc(10);
  errno = ERANGE;
  bp_free(block);
  TEST_ASSERT_EQUAL_INT(ERANGE, errno);
}

TEST(CInterface, OtherMemoryIsNotThePools) {
  int on_the_stack = 0;
  TEST_ASSERT_EQUAL_INT(0, bp_contains(&on_the_stack, sizeof on_the_stack));
  TEST_ASSERT_EQUAL_INT(0, bp_contains(block_of_the_program, sizeof block_of_the_program));
  TEST_ASSERT_EQUAL_INT(0, bp_contains(NULL, 1));
}

// ---- The support level --------------------------------------------------------------------------

TEST(CInterface, SupportIsFreeAndChunkBeforeTheSeal) {
  NEEDS_THE_POOLS_HEAP();
  const unsigned level = bp_support_level();
  TEST_ASSERT_EQUAL_UINT(BP_SUPPORT_FREE | BP_SUPPORT_CHUNK, level);
  TEST_ASSERT_EQUAL_STRING("FREE CHUNK", bp_support_level_text(level));
}

TEST(CInterface, EverySupportLevelHasAText) {
  const char* const texts[] = {"none",   "FREE",        "CHUNK",        "FREE CHUNK",
                               "MUNMAP", "FREE MUNMAP", "CHUNK MUNMAP", "FREE CHUNK MUNMAP"};
  for (unsigned level = 0; level < 8; ++level) {
    TEST_ASSERT_EQUAL_STRING(texts[level], bp_support_level_text(level));
    TEST_ASSERT_EQUAL_PTR(bp_support_level_text(level), bp_support_level_text(level));
  }
  TEST_ASSERT_EQUAL_STRING("unknown", bp_support_level_text(8));
}

// ---- The audit ----------------------------------------------------------------------------------

TEST(CInterface, AuditOfASoundPoolIsOk) {
  char text[256] = "";
  const int is_sound = bp_audit(text, sizeof text);
  TEST_ASSERT_EQUAL_STRING("ok", text);
  TEST_ASSERT_EQUAL_INT(1, is_sound);
  TEST_ASSERT_EQUAL_INT(1, bp_audit(NULL, 0));
}

// Runs in a child, so that the pool of this process stays whole. (A child does not inherit memory
// locks, which the audit also reports.) Returns the number of the first failed step; 0: none.
static int audit_without_a_page(void* page) {
  char text[512];
  if (munmap(page, kPage) != 0) return 1;
  if (bp_audit(text, sizeof text) != 0) return 2;
  if (strstr(text, "boot: 4096 of ") == NULL) return 3;
  if (bp_audit(text, 5) != 0) return 4;
  return strcmp(text, "boot") == 0 ? 0 : 5;
}

TEST(CInterface, AuditSaysWhatIsWrong) {
  NEEDS_THE_POOLS_HEAP();
  void* page = bp_alloc_aligned(kPage, kPage);
  const pid_t child = fork();
  if (child == 0) _exit(audit_without_a_page(page));
  int status = -1;
  TEST_ASSERT_EQUAL_INT(child, waitpid(child, &status, 0));
  TEST_ASSERT_EQUAL_INT(0, status);
  bp_free(page);
}

TEST(CInterface, AuditSaysWhyItCannotLook) {
  struct rlimit before, none;
  char text[128];
  TEST_ASSERT_EQUAL_INT(0, getrlimit(RLIMIT_NOFILE, &before));
  none = before;
  none.rlim_cur = 0;
  TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_NOFILE, &none));
  const int outcome = bp_audit(text, sizeof text);
  TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_NOFILE, &before));
  TEST_ASSERT_EQUAL_INT(-1, outcome);
  const char* const begin = "auditing the pool: opening /proc/self/smaps: Too many open files; ";
  TEST_ASSERT_EQUAL_PTR(text, strstr(text, begin));
}

TEST(CInterface, AnOwnerIsRefusedWhatIsBeyondItsLimit) {
  NEEDS_THE_POOLS_HEAP();
  enum { kBlockBytes = 50000, kBlockCountMax = 100 };
  void* blocks[kBlockCountMax];
  int count = 0;
  const bp_owner owner = bp_owner_create("heap:c-test", 2 << 20);
  TEST_ASSERT_TRUE(owner != 0);
  TEST_ASSERT_EQUAL_INT(0, bp_owner_enter(owner));
  while (count < kBlockCountMax && (blocks[count] = bp_alloc(kBlockBytes)) != NULL) ++count;
  TEST_ASSERT_EQUAL_INT(ENOMEM, errno);
  TEST_ASSERT_EQUAL_INT((int)owner, (int)bp_owner_enter(0));
  TEST_ASSERT_TRUE(count > 10 && count < 42);
  TEST_ASSERT_TRUE(bp_owner_used_bytes(owner) > (size_t)count * kBlockBytes);
  TEST_ASSERT_TRUE(bp_owner_used_bytes(owner) <= (2 << 20));
  while (count > 0) bp_free(blocks[--count]);
}

static int low_memory_calls = 0;
static void count_call(void* context) { low_memory_calls += *(int*)context; }

TEST(CInterface, LowMemoryIsTold) {
  NEEDS_THE_POOLS_HEAP();
  int one = 1;
  // A heap of 256 MiB has space for one such block, but not for two.
  const size_t large_bytes = (size_t)160 << 20;
  void* large = bp_alloc(large_bytes);
  TEST_ASSERT_TRUE(large != NULL);
  bp_on_low_memory(too_many_bytes, &count_call, &one);
  TEST_ASSERT_TRUE(bp_alloc(large_bytes) == NULL);
  TEST_ASSERT_TRUE(low_memory_calls > 0);
  int calls = low_memory_calls;
  // A request that even an empty heap cannot meet does not count as low memory.
  TEST_ASSERT_TRUE(bp_alloc(too_many_bytes) == NULL);
  TEST_ASSERT_EQUAL_INT(calls, low_memory_calls);
  bp_on_low_memory(0, NULL, NULL);
  TEST_ASSERT_TRUE(bp_alloc(large_bytes) == NULL);
  TEST_ASSERT_EQUAL_INT(calls, low_memory_calls);
  bp_free(large);
}
