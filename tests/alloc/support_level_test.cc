// The proof of malloc's support level: its result for the pool's malloc, and its failure for other
// mallocs and for a full heap.
#include "alloc/support_level.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "alloc/confined_heap.h"
#include "alloc/interception.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

bool refused() noexcept { return true; }
bool not_refused() noexcept { return false; }

uint64_t used_bytes() {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) bytes += heap_arena_use(i).used_bytes;
  return bytes;
}

}  // namespace

BP_PROBE(SupportOfAnOrdinaryHeapIsNone) {
  const SupportProof proof = prove_support_level(&refused);
  BP_PROBE_CHECK(proof.level == SupportLevel::kMunmap);
  BP_PROBE_CHECK(std::strcmp(proof.failed_allocator, "malloc") == 0);
  BP_PROBE_CHECK(std::strcmp(proof.failure, "its block does not lie in the pool") == 0);
}

BP_PROBE(SupportWithoutRoomIsNone) {
  test::BlockList list;
  list.add_all(kMiB);
  const SupportProof proof = prove_support_level();
  BP_PROBE_CHECK(proof.level == SupportLevel::kNone);
  BP_PROBE_CHECK(std::strcmp(proof.failure, "the heap has no 4 MB free") == 0);
  list.free_all();
  BP_PROBE_CHECK(includes(prove_support_level().level, SupportLevel::kFree));
}

TEST_GROUP(SupportLevel){};

TEST(SupportLevel, OfThePoolsMallocIsFreeAndChunk) {
  BP_SKIP_UNDER_SANITIZER();
  const uint64_t before = used_bytes();
  const SupportProof proof = prove_support_level();
  POINTERS_EQUAL(nullptr, proof.failure);
  POINTERS_EQUAL(nullptr, proof.failed_allocator);
  STRCMP_EQUAL("FREE CHUNK", to_text(proof.level));
  CHECK(used_bytes() == before);
}

TEST(SupportLevel, OtherThreadsMayTakeAndFreeMeanwhile) {
  BP_SKIP_UNDER_SANITIZER();
  std::atomic<bool> is_done = false;
  std::atomic<int> rounds = 0;
  std::thread other([&] {
    while (!is_done.load(std::memory_order_relaxed)) {
      void* block = std::malloc(6 * kMiB);
      asm volatile("" : "+r"(block) : : "memory");
      std::free(block);
      rounds.fetch_add(1, std::memory_order_relaxed);
    }
  });
  const char* failure = nullptr;
  for (int i = 0; i < 200 || rounds.load(std::memory_order_relaxed) < 1000; ++i) {
    const SupportProof proof = prove_support_level();
    if (failure == nullptr) failure = proof.failure;
  }
  is_done.store(true, std::memory_order_relaxed);
  other.join();
  POINTERS_EQUAL(nullptr, failure);
}

TEST(SupportLevel, MunmapIsWhatTheProbeSays) {
  BP_SKIP_UNDER_SANITIZER();
  STRCMP_EQUAL("FREE CHUNK MUNMAP", to_text(prove_support_level(&refused).level));
  STRCMP_EQUAL("FREE CHUNK", to_text(prove_support_level(&not_refused).level));
}

TEST(SupportLevel, OfASanitizersMallocIsNone) {
  if (!test::kIsSanitized) BP_SKIP("malloc is the pool's in this build");
  const SupportProof proof = prove_support_level();
  CHECK(proof.level == SupportLevel::kNone);
  STRCMP_EQUAL("malloc", proof.failed_allocator);
}

TEST(SupportLevel, OfAnOrdinaryHeapIsNone) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(SupportOfAnOrdinaryHeapIsNone, "BEDPLATE_LEAVE_PINNED=no");
}

TEST(SupportLevel, WithoutRoomNothingIsProved) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(SupportWithoutRoomIsNone);
}

TEST(SupportLevel, HasAText) {
  STRCMP_EQUAL("none", to_text(SupportLevel::kNone));
  STRCMP_EQUAL("CHUNK MUNMAP", to_text(SupportLevel::kChunk | SupportLevel::kMunmap));
  STRCMP_EQUAL("unknown", to_text(static_cast<SupportLevel>(8)));
}

TEST(SupportLevel, ProviderOfMallocIsThisProgram) {
  BP_SKIP_UNDER_SANITIZER();
  char text[64];
  STRCMP_EQUAL("bedplate-tests", malloc_provider(text, sizeof text));
  STRCMP_EQUAL("bed", malloc_provider(text, 4));
}
