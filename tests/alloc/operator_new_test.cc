// new and delete, and the exception that they throw. Compiled with exceptions
// (scripts/mk/flags.mk).
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

#undef new  // CppUTest's macro, which calls another operator new

using namespace bedplate;
using bedplate::test::is_aligned;
using bedplate::test::keep;

namespace {

// More than the heap has. volatile, since the compiler would refuse the constant.
volatile size_t too_many_bytes = kTiB;

int handler_calls = 0;
void* spare_block = nullptr;

void give_up_at_once() {
  ++handler_calls;
  std::set_new_handler(nullptr);
}

void ask_for_what_is_there() {
  ++handler_calls;
  ::operator delete(spare_block);
  spare_block = nullptr;
  std::set_new_handler(nullptr);
}

void throw_something_else() { throw 42; }

struct alignas(512) Wide {
  char bytes[1024];
};

template <typename Allocate>
bool throws_bad_alloc(const Allocate& allocate) {
  try {
    ::operator delete(keep(allocate()));
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_GROUP(OperatorNew){void teardown() override{std::set_new_handler(nullptr);
handler_calls = 0;
}
void check_block(void* block, size_t bytes, size_t alignment) {
  CHECK(block != nullptr);
  CHECK(process_pool().contains(block, bytes));
  CHECK(is_aligned(block, alignment));
}
}
;

TEST(OperatorNew, EveryFormHandsOutPoolMemory) {
  BP_SKIP_UNDER_SANITIZER();
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{24}, size_t{4096}, size_t{kMiB}, size_t{64 * kMiB}}) {
    void* block = keep(::operator new(bytes));
    check_block(block, bytes, 8);
    ::operator delete(block, bytes);
    block = keep(::operator new[](bytes));
    check_block(block, bytes, 8);
    ::operator delete[](block);
    block = keep(::operator new(bytes, std::nothrow));
    check_block(block, bytes, 8);
    ::operator delete(block, std::nothrow);
    block = keep(::operator new[](bytes, std::nothrow));
    check_block(block, bytes, 8);
    ::operator delete[](block, bytes);
  }
}

TEST(OperatorNew, EveryAlignedFormIsAligned) {
  BP_SKIP_UNDER_SANITIZER();
  for (size_t alignment = 8; alignment <= 2 * kMiB; alignment *= 2) {
    const std::align_val_t wanted{alignment};
    for (const size_t bytes : {size_t{1}, alignment, size_t{1024}}) {
      void* block = keep(::operator new(bytes, wanted));
      check_block(block, bytes, alignment);
      ::operator delete(block, bytes, wanted);
      block = keep(::operator new[](bytes, wanted));
      check_block(block, bytes, alignment);
      ::operator delete[](block, wanted);
      block = keep(::operator new(bytes, wanted, std::nothrow));
      check_block(block, bytes, alignment);
      ::operator delete(block, wanted, std::nothrow);
      block = keep(::operator new[](bytes, wanted, std::nothrow));
      check_block(block, bytes, alignment);
      ::operator delete[](block, bytes, wanted);
    }
  }
}

TEST(OperatorNew, ExpressionsLieInThePool) {
  BP_SKIP_UNDER_SANITIZER();
  const std::unique_ptr<int> number(new int(7));
  check_block(keep(number.get()), sizeof(int), alignof(int));
  const std::unique_ptr<Wide[]> wide(new Wide[5]);
  check_block(keep(wide.get()), 5 * sizeof(Wide), 512);
}

TEST(OperatorNew, ZeroBytesAreABlockOfTheirOwn) {
  BP_SKIP_UNDER_SANITIZER();
  void* one = keep(::operator new(0));
  void* two = keep(::operator new(0));
  CHECK(one != two);
  ::operator delete(one);
  ::operator delete(two);
  ::operator delete(nullptr);
}

TEST(OperatorNew, SeveralThreadsGetPoolMemory) {
  BP_SKIP_UNDER_SANITIZER();
  bool inside[4] = {};
  std::vector<std::thread> threads;
  for (bool& result : inside) {
    threads.emplace_back([&result] {
      result = true;
      for (size_t bytes = 1; bytes < 100'000; bytes += bytes / 3 + 1) {
        void* block = keep(::operator new(bytes));
        result = result && process_pool().contains(block, bytes);
        ::operator delete(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool result : inside) CHECK(result);
}

TEST(OperatorNew, ThrowsBadAllocWhenThereIsNoMemory) {
  BP_SKIP_UNDER_SANITIZER();
  const std::align_val_t wide{4096};
  CHECK(throws_bad_alloc([] { return ::operator new(too_many_bytes); }));
  CHECK(throws_bad_alloc([] { return ::operator new[](too_many_bytes); }));
  CHECK(throws_bad_alloc([&] { return ::operator new(too_many_bytes, wide); }));
  CHECK(throws_bad_alloc([&] { return ::operator new[](too_many_bytes, wide); }));
  CHECK(throws_bad_alloc([] { return ::operator new(SIZE_MAX - too_many_bytes); }));
  CHECK_FALSE(throws_bad_alloc([] { return ::operator new(100); }));
}

TEST(OperatorNew, NothrowFormsReturnNull) {
  BP_SKIP_UNDER_SANITIZER();
  const std::align_val_t wide{4096};
  CHECK(keep(::operator new(too_many_bytes, std::nothrow)) == nullptr);
  CHECK(keep(::operator new[](too_many_bytes, std::nothrow)) == nullptr);
  CHECK(keep(::operator new(too_many_bytes, wide, std::nothrow)) == nullptr);
  CHECK(keep(::operator new[](too_many_bytes, wide, std::nothrow)) == nullptr);
}

TEST(OperatorNew, HandlerIsCalledUntilThereIsNone) {
  BP_SKIP_UNDER_SANITIZER();
  std::set_new_handler(&give_up_at_once);
  CHECK(throws_bad_alloc([] { return ::operator new(too_many_bytes); }));
  LONGS_EQUAL(1, handler_calls);
  std::set_new_handler(&give_up_at_once);
  CHECK(keep(::operator new(too_many_bytes, std::nothrow)) == nullptr);
  LONGS_EQUAL(2, handler_calls);
}

TEST(OperatorNew, HandlerThatFreesMemoryLetsItSucceed) {
  BP_SKIP_UNDER_SANITIZER();
  constexpr size_t kBytes = 160 * kMiB;  // of 256 MiB: two do not fit
  spare_block = keep(::operator new(kBytes));
  std::set_new_handler(&ask_for_what_is_there);
  void* block = keep(::operator new(kBytes));
  LONGS_EQUAL(1, handler_calls);
  CHECK(process_pool().contains(block, kBytes));
  ::operator delete(block);
}

TEST(OperatorNew, HandlerMayThrowSomethingElse) {
  BP_SKIP_UNDER_SANITIZER();
  std::set_new_handler(&throw_something_else);
  bool was_caught = false;
  try {
    keep(::operator new(too_many_bytes));
  } catch (int number) {
    was_caught = number == 42;
  }
  CHECK(was_caught);
  CHECK(keep(::operator new(too_many_bytes, std::nothrow)) == nullptr);
}

BP_PROBE(ThrowWithAnExhaustedHeap) {
  // The exception itself needs memory, which the C++ library has reserved.
  test::BlockList blocks;
  blocks.add_all(64 * kKiB);
  blocks.add_all(kKiB);
  blocks.add_all(64);  // also from pages that earlier code left half empty
  blocks.add_all(16);
  BP_PROBE_CHECK(throws_bad_alloc([] { return ::operator new(64 * kKiB); }));
  BP_PROBE_CHECK(throws_bad_alloc([] { return ::operator new(64); }));
  blocks.free_all();
  BP_PROBE_CHECK(!throws_bad_alloc([] { return ::operator new(64 * kKiB); }));
}

TEST(OperatorNew, ThrowsWhenNotAByteIsLeft) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(ThrowWithAnExhaustedHeap);
}
