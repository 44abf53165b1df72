// The pool's heap for C++ containers. Compiled with exceptions (scripts/mk/flags.mk).
#include "alloc/pool_resource.h"

#include <map>
#include <new>
#include <string>
#include <vector>

#include "alloc/pool_allocator.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::is_aligned;

namespace {

struct alignas(512) Wide {
  char bytes[1024];
};

// More than the heap has. volatile, since the compiler would refuse the constant.
volatile size_t too_many_bytes = kTiB;

template <typename Exception, typename Body>
bool throws(Body&& body) {
  try {
    body();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_GROUP(PoolResource){};

TEST(PoolResource, VectorsAndMapsLieInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  std::pmr::vector<int> numbers(1000, 7, pool_resource());
  CHECK(process_pool().contains(numbers.data(), 1000 * sizeof(int)));
  std::pmr::map<int, int> squares(pool_resource());
  for (int i = 0; i < 100; ++i) squares[i] = i * i;
  for (const auto& entry : squares) CHECK(process_pool().contains(&entry, sizeof entry));
}

TEST(PoolResource, KeepsTheAlignment) {
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    void* block = pool_resource()->allocate(1, alignment);
    CHECK(is_aligned(block, alignment));
    pool_resource()->deallocate(block, 1, alignment);
  }
}

TEST(PoolResource, IsEqualToItselfOnly) {
  CHECK(pool_resource()->is_equal(*pool_resource()));
  CHECK(!pool_resource()->is_equal(*std::pmr::null_memory_resource()));
}

TEST(PoolResource, ThrowsBadAllocWhenExhausted) {
  BP_SKIP_UNDER_SANITIZER();
  CHECK(throws<std::bad_alloc>([] { (void)pool_resource()->allocate(too_many_bytes); }));
}

TEST_GROUP(PoolAllocator){};

TEST(PoolAllocator, ContainersLieInThePoolAlignedAsTheirElements) {
  BP_SKIP_UNDER_SANITIZER();
  std::vector<Wide, PoolAllocator<Wide>> wide(3);
  CHECK(process_pool().contains(wide.data(), 3 * sizeof(Wide)));
  CHECK(is_aligned(wide.data(), 512));
  std::map<int, int, std::less<>, PoolAllocator<std::pair<const int, int>>> rebound;
  rebound[1] = 2;
  CHECK(process_pool().contains(&*rebound.begin(), sizeof(int)));
}

TEST(PoolAllocator, AllAreEqual) {
  CHECK(PoolAllocator<int>() == PoolAllocator<Wide>());
  static_assert(std::allocator_traits<PoolAllocator<int>>::is_always_equal::value);
}

TEST(PoolAllocator, RefusesWithAnException) {
  BP_SKIP_UNDER_SANITIZER();
  CHECK(throws<std::bad_alloc>([] { (void)PoolAllocator<char>().allocate(too_many_bytes); }));
  const size_t overflowing = SIZE_MAX / sizeof(Wide) + 1;
  CHECK(throws<std::bad_array_new_length>(
      [&] { (void)PoolAllocator<Wide>().allocate(overflowing); }));
}
