// Promise 1, first half: malloc and its family (alloc/memory_calls.cc) hand out pool memory only.
#include "alloc/interception.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <malloc.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::allocate;
using bedplate::test::is_aligned;
using bedplate::test::keep;
using bedplate::test::Seed;

namespace {

// Allocated before main.
const std::unique_ptr<void, void (*)(void*)> early_block(allocate(100),
                                                         [](void* block) { std::free(block); });

const size_t kSizes[] = {0,        1,        7,         8,        15,       16,
                         17,       100,      255,       256,      257,      1000,
                         1024,     4095,     4096,      4097,     16384,    65536,
                         100'000,  131'072,  1'000'000, kMiB,     2 * kMiB, 4 * kMiB - 64,
                         4 * kMiB, 5 * kMiB, 16 * kMiB, 33333333, 64 * kMiB};

bool lies_in_pool(const void* block, size_t bytes) {
  return in_pool_range(block) && process_pool().contains(block, bytes);
}

// A function that allocates a block of at least `bytes`.
struct Allocator {
  const char* name;
  void* (*get)(size_t bytes);
};

constexpr Allocator kAllocators[] = {
    {"malloc", [](size_t bytes) { return keep(std::malloc(bytes)); }},
    {"calloc", [](size_t bytes) { return keep(std::calloc(1, bytes)); }},
    {"realloc", [](size_t bytes) { return keep(std::realloc(nullptr, bytes)); }},
    {"realloc of a block",
     [](size_t bytes) { return keep(std::realloc(allocate(24), bytes == 0 ? 1 : bytes)); }},
    {"reallocarray", [](size_t bytes) { return keep(reallocarray(nullptr, 1, bytes)); }},
    {"memalign", [](size_t bytes) { return keep(memalign(64, bytes)); }},
    {"aligned_alloc", [](size_t bytes) { return keep(std::aligned_alloc(128, bytes)); }},
    {"posix_memalign",
     [](size_t bytes) {
       void* block = nullptr;
       return posix_memalign(&block, 32, bytes) == 0 ? keep(block) : nullptr;
     }},
    {"valloc", [](size_t bytes) { return keep(valloc(bytes)); }},
    {"pvalloc", [](size_t bytes) { return keep(pvalloc(bytes)); }},
};

void fill(void* block, size_t bytes, uint64_t seed) {
  auto* out = static_cast<unsigned char*>(block);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<unsigned char>(seed + i * 131);
}

bool is_filled(const void* block, size_t bytes, uint64_t seed) {
  const auto* in = static_cast<const unsigned char*>(block);
  for (size_t i = 0; i < bytes; ++i) {
    if (in[i] != static_cast<unsigned char>(seed + i * 131)) return false;
  }
  return true;
}

bool is_zero(const void* block, size_t bytes) {
  const auto* in = static_cast<const unsigned char*>(block);
  return std::all_of(in, in + bytes, [](unsigned char byte) { return byte == 0; });
}

}  // namespace

TEST_GROUP(Interception){};

TEST(Interception, IsSeenToWork) { CHECK(malloc_is_intercepted() == !test::kIsSanitized); }

TEST(Interception, EveryAllocatorHandsOutPoolMemoryOfEverySize) {
  BP_SKIP_UNDER_SANITIZER();
  for (const Allocator& allocator : kAllocators) {
    for (const size_t bytes : kSizes) {
      void* block = allocator.get(bytes);
      const std::string text = allocator.name + (" of " + std::to_string(bytes));
      CHECK_TEXT(block != nullptr, text.c_str());
      CHECK_TEXT(lies_in_pool(block, bytes), text.c_str());
      CHECK_TEXT(is_aligned(block, alignof(max_align_t)) || bytes < 16, text.c_str());
      CHECK_TEXT(malloc_usable_size(block) >= bytes, text.c_str());
      std::memset(block, 0x77, bytes);
      std::free(block);
    }
  }
}

TEST(Interception, BlocksFromBeforeMainLieInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  CHECK(early_block != nullptr);
  CHECK(lies_in_pool(early_block.get(), 100));
}

TEST(Interception, WhatTheLibraryAllocatesLiesInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  char* copy = strdup("text");
  CHECK(lies_in_pool(copy, 5));
  std::free(copy);

  char* printed = nullptr;
  LONGS_EQUAL(6, asprintf(&printed, "%d", 123456));
  CHECK(lies_in_pool(printed, 7));
  std::free(printed);

  std::FILE* file = std::fopen("/proc/self/maps", "r");
  CHECK(lies_in_pool(file, 1));
  char* line = nullptr;
  size_t capacity = 0;
  CHECK(getline(&line, &capacity, file) > 0);
  CHECK(lies_in_pool(line, capacity));
  std::fclose(file);
  std::free(line);
}

TEST(Interception, ContainersLieInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  const std::string text(1000, 'x');
  CHECK(lies_in_pool(text.data(), text.size()));
  const std::vector<int> numbers(100'000, 7);
  CHECK(lies_in_pool(numbers.data(), numbers.size() * sizeof(int)));
  std::map<int, std::string> map;
  for (int i = 0; i < 1000; ++i) map[i] = std::string(40, 'y');
  for (const auto& [key, value] : map) CHECK(lies_in_pool(&key, 4) && lies_in_pool(&value[0], 40));
}

TEST(Interception, AlignmentIsHonouredUpToTwoMiB) {
  BP_SKIP_UNDER_SANITIZER();
  for (size_t alignment = 16; alignment <= 2 * kMiB; alignment *= 2) {
    for (const size_t bytes : {size_t{1}, size_t{100}, alignment - 1, alignment, alignment + 1,
                               3 * alignment, size_t{300'000}}) {
      void* blocks[3] = {keep(memalign(alignment, bytes)),
                         keep(std::aligned_alloc(alignment, bytes)), nullptr};
      LONGS_EQUAL(0, posix_memalign(&blocks[2], alignment, bytes));
      for (void* block : blocks) {
        CHECK(block != nullptr);
        CHECK(is_aligned(block, alignment));
        CHECK(lies_in_pool(block, bytes));
        fill(block, bytes, alignment);
      }
      for (void* block : blocks) {
        CHECK(is_filled(block, bytes, alignment));
        std::free(block);
      }
    }
  }
}

// Unchanged, mimalloc 2.0.9 gives misaligned blocks here; Bedplate adjusts its sources.
TEST(Interception, PosixMemalignOfSmallPowersOfTwoIsAligned) {
  BP_SKIP_UNDER_SANITIZER();
  constexpr int kBlockCount = 1000;
  for (const size_t bytes : {256U, 512U, 1024U}) {
    for (size_t alignment = 256; alignment <= 1024; alignment *= 2) {
      void* blocks[kBlockCount] = {};
      for (void*& block : blocks) {
        LONGS_EQUAL(0, posix_memalign(&block, alignment, bytes));
        CHECK(is_aligned(block, alignment));
      }
      for (void* block : blocks) std::free(block);
    }
  }
}

TEST(Interception, PageFunctionsGiveWholePages) {
  BP_SKIP_UNDER_SANITIZER();
  void* one = keep(valloc(100));
  void* two = keep(pvalloc(100));
  CHECK(is_aligned(one, 4096));
  CHECK(is_aligned(two, 4096));
  CHECK(malloc_usable_size(two) >= 4096);
  std::free(one);
  std::free(two);
}

TEST(Interception, AlignmentsThatAreNoneAreRefused) {
  BP_SKIP_UNDER_SANITIZER();
  void* block = &block;
  for (const size_t alignment : {size_t{0}, size_t{3}, size_t{4}, size_t{24}, size_t{100}}) {
    LONGS_EQUAL(EINVAL, posix_memalign(&block, alignment, 100));
    CHECK(block == &block);  // untouched
  }
  volatile size_t three = 3;
  errno = 0;
  CHECK(keep(memalign(SIZE_MAX - three, 100)) == nullptr);
  LONGS_EQUAL(EINVAL, errno);
  errno = 0;
  CHECK(keep(std::aligned_alloc(three, 100)) == nullptr);
  LONGS_EQUAL(EINVAL, errno);
}

// glibc does the same.
TEST(Interception, MemalignTakesTheNextPowerOfTwo) {
  BP_SKIP_UNDER_SANITIZER();
  for (const size_t alignment : {size_t{0}, size_t{3}, size_t{100}, size_t{5000}}) {
    void* block = keep(memalign(alignment, 100));
    CHECK(block != nullptr && is_aligned(block, std::bit_ceil(alignment)));
    std::free(block);
  }
}

TEST(Interception, SizesThatOverflowAreRefused) {
  BP_SKIP_UNDER_SANITIZER();
  volatile size_t huge = SIZE_MAX / 2;
  const auto check_refused = [](const char* name, void* block) {
    CHECK_TEXT(block == nullptr, name);
    LONGS_EQUAL_TEXT(ENOMEM, errno, name);
    errno = 0;
  };
  errno = 0;
  check_refused("malloc of nearly all", keep(std::malloc(huge + huge)));
  check_refused("malloc", keep(std::malloc(huge + 1)));
  check_refused("calloc of many", keep(std::calloc(huge, 3)));
  check_refused("calloc of large", keep(std::calloc(3, huge)));
  check_refused("realloc", keep(std::realloc(nullptr, huge + 1)));
  check_refused("reallocarray", keep(reallocarray(nullptr, huge, 3)));
  check_refused("memalign", keep(memalign(64, huge + 1)));
  check_refused("aligned_alloc", keep(std::aligned_alloc(64, huge + 1)));
  check_refused("valloc", keep(valloc(huge + 1)));
  check_refused("pvalloc", keep(pvalloc(huge + 1)));
  check_refused("pvalloc of all", keep(pvalloc(huge + huge + 1)));
  void* block = &block;
  LONGS_EQUAL(ENOMEM, posix_memalign(&block, 64, huge + 1));
  CHECK(block == &block);
}

TEST(Interception, ZeroBytesAreABlockOfTheirOwn) {
  BP_SKIP_UNDER_SANITIZER();
  void* one = allocate(0);
  void* two = allocate(0);
  CHECK(one != nullptr && two != nullptr && one != two);
  std::free(one);
  std::free(two);
  std::free(nullptr);
}

BP_PROBE(ReallocToNothing) {
  volatile size_t none = 0;
  errno = 0;
  for (int i = 0; i < 200'000; ++i) {  // 20 MB; the heap has 16 MiB
    void* block = allocate(100);
    BP_PROBE_CHECK(block != nullptr);
    BP_PROBE_CHECK(i % 2 == 0 ? keep(std::realloc(block, none)) == nullptr
                              : keep(reallocarray(block, 10, none)) == nullptr);
  }
  BP_PROBE_CHECK(errno == 0);
  void* block = keep(std::realloc(nullptr, none));
  BP_PROBE_CHECK(block != nullptr);
  std::free(block);
}

TEST(Interception, ReallocToNothingFrees) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ReallocToNothing);
}

TEST(Interception, CallocIsZeroedWhoeverHadTheMemory) {
  BP_SKIP_UNDER_SANITIZER();
  for (const size_t bytes : kSizes) {
    for (int round = 0; round < 3; ++round) {
      void* dirty = allocate(bytes);
      CHECK(dirty != nullptr);
      std::memset(dirty, 0xee, bytes);
      std::free(dirty);
      void* clean = keep(std::calloc(bytes, 1));
      CHECK(clean != nullptr);
      CHECK_TEXT(is_zero(clean, bytes), std::to_string(bytes).c_str());
      std::memset(clean, 0xdd, bytes);
      std::free(clean);
    }
  }
}

TEST(Interception, ContentsSurviveRealloc) {
  BP_SKIP_UNDER_SANITIZER();
  size_t held = 24;
  void* block = allocate(held);
  fill(block, held, 5);
  for (const size_t bytes :
       {25U, 100U, 80U, 5000U, 4096U, 300'000U, 200'000U, 9'000'000U, 40'000'000U, 70'000U, 16U}) {
    block = keep(std::realloc(block, bytes));
    CHECK(lies_in_pool(block, bytes));
    CHECK(is_filled(block, std::min(held, bytes), 5));
    held = bytes;
    fill(block, held, 5);
  }
  std::free(block);
}

TEST(Interception, RefusedReallocLeavesTheBlock) {
  BP_SKIP_UNDER_SANITIZER();
  void* block = allocate(1000);
  fill(block, 1000, 9);
  volatile size_t too_many = kTiB;
  errno = 0;
  CHECK(keep(std::realloc(keep(block), too_many)) == nullptr);
  LONGS_EQUAL(ENOMEM, errno);
  CHECK(is_filled(block, 1000, 9));
  std::free(block);
}

TEST(Interception, TuningIsAcceptedWhereItIsKnown) {
  BP_SKIP_UNDER_SANITIZER();
  for (const int parameter : {M_MXFAST, M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX,
                              M_CHECK_ACTION, M_PERTURB, M_ARENA_TEST, M_ARENA_MAX}) {
    LONGS_EQUAL(1, mallopt(parameter, 0));
  }
  for (const int parameter : {0, -9, 5, 1000}) LONGS_EQUAL(0, mallopt(parameter, 0));
  LONGS_EQUAL(0, malloc_trim(0));
}

TEST(Interception, DebugBuildsCheckEveryPointer) {
  BP_SKIP_UNDER_SANITIZER();
  const uint64_t before = checked_pointer_count();
  for (int i = 0; i < 100; ++i) std::free(allocate(10));
  CHECK(checked_pointer_count() - before == (BP_DEBUG ? 100 : 0));
}

#if BP_DEBUG
// In a fresh process: in a forked child, pointers need not lie in the pool.
BP_PROBE(HandsOutAPointerOutsideThePool) {
  static int outside = 0;
  handed_out(&outside);
}
#endif
TEST(Interception, PointerOutsideThePoolWouldStopADebugBuild) {
  BP_SKIP_UNDER_SANITIZER();
#if BP_DEBUG
  test::check_died(test::run_fresh("HandsOutAPointerOutsideThePool"),
                   "assertion failed: pointer == nullptr || is_forked_child()", __FILE__, __LINE__);
#else
  static int outside = 0;
  CHECK(handed_out(&outside) == &outside);
#endif
  CHECK(handed_out(nullptr) == nullptr);
}

// Several threads use all allocation functions, and exchange blocks, which other threads free. Each
// block lies in the pool, is aligned as requested, and keeps what was written.
namespace {

struct Block {
  void* address = nullptr;
  size_t bytes = 0;
  uint64_t seed = 0;
};

class Exchange {
 public:
  // Stores `block`, and returns the block that was there, which may be empty.
  Block swap(size_t index, const Block& block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(blocks_[index % std::size(blocks_)], block);
  }

 private:
  std::mutex mutex_;
  Block blocks_[32];
};

// Frees `block`. Returns the fault that was found, or nullptr.
const char* give_back(const Block& block) {
  if (block.address == nullptr) return nullptr;
  const bool is_whole = is_filled(block.address, block.bytes, block.seed);
  std::free(block.address);
  return is_whole ? nullptr : "a block lost what was written";
}

size_t some_size(std::mt19937_64& random) {
  const uint64_t kind = random() % 100;
  if (kind < 70) return random() % 1024;
  if (kind < 95) return random() % (64 * kKiB);
  return random() % (2 * kMiB);
}

const char* take_new(std::mt19937_64& random, Block* block) {
  block->bytes = some_size(random);
  block->seed = random();
  if (random() % 4 == 0) {
    const size_t alignment = size_t{16} << (random() % 13);
    block->address = keep(memalign(alignment, block->bytes));
    if (!is_aligned(block->address, alignment)) return "a block is misaligned";
  } else {
    block->address = kAllocators[random() % std::size(kAllocators)].get(block->bytes);
  }
  if (block->address == nullptr) return "no memory";
  if (!lies_in_pool(block->address, block->bytes)) return "a block lies outside the pool";
  fill(block->address, block->bytes, block->seed);
  return nullptr;
}

const char* grow_or_shrink(std::mt19937_64& random, Block* block) {
  if (block->address == nullptr) return nullptr;
  const size_t bytes = some_size(random) + 1;
  block->address = keep(std::realloc(block->address, bytes));
  if (block->address == nullptr) return "no memory for realloc";
  if (!lies_in_pool(block->address, bytes)) return "realloc left the pool";
  if (!is_filled(block->address, std::min(bytes, block->bytes), block->seed)) {
    return "realloc lost what was written";
  }
  block->bytes = bytes;
  fill(block->address, bytes, block->seed);
  return nullptr;
}

const char* use_heap(uint64_t seed, Exchange* exchange) {
  std::mt19937_64 random(seed);
  Block own[24];
  const char* problem = nullptr;
  for (int round = 0; round < 6'000 && problem == nullptr; ++round) {
    Block& block = own[random() % std::size(own)];
    switch (random() % 4) {
      case 0: problem = grow_or_shrink(random, &block); break;
      case 1: block = exchange->swap(random(), block); break;
      default:
        problem = give_back(block);
        if (problem == nullptr) problem = take_new(random, &block);
    }
  }
  for (const Block& block : own) {
    const char* last = give_back(block);
    if (problem == nullptr) problem = last;
  }
  return problem;
}

}  // namespace

TEST(Interception, SeveralThreadsAgreeWithASimpleModel) {
  BP_SKIP_UNDER_SANITIZER();
  constexpr int kThreadCount = 4;
  const Seed seed;
  Exchange exchange;
  const char* problems[kThreadCount] = {};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([&, i] { problems[i] = use_heap(seed.value() + i, &exchange); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 32; ++i) {
    const char* problem = give_back(exchange.swap(i, {}));
    CHECK_TEXT(problem == nullptr, seed.text());
  }
  for (const char* problem : problems) {
    if (problem != nullptr) FAIL((std::string(problem) + "; " + seed.text()).c_str());
  }
}
