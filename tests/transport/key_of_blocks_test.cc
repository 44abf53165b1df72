// Keys of a program's memory. A block of the heap, from any interface, and a buffer of a carve have
// keys to their last byte; memory outside the pool has none.
#include "transport/registration.h"

#include <cstdlib>

#include <sys/mman.h>

#include "alloc/buffer_pool_datapath.h"
#include "alloc/pool_allocator.h"
#include "alloc/pool_heap.h"
#include "alloc/pool_resource.h"
#include "apps/c_interface/bedplate.h"
#include "tests/support/blocks.h"
#include "tests/support/death_test.h"
#include "tests/support/fake_device.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// The keys of the process's pool for two devices: one takes a segment as a whole, the other in
// regions of 1 MiB, so that a large block needs several keys.
class Keys {
 public:
  Keys() {
    cutting_device_.limits.region_bytes_max = kMiB;
    are_there_ = whole_.create(process_pool(), whole_device_).ok() &&
                 cut_.create(process_pool(), cutting_device_).ok();
  }
  bool cover(const void* block, uint64_t bytes) const {
    return are_there_ && whole_.key(block, bytes).bytes == bytes && covers_in_pieces(block, bytes);
  }
  bool cover_no_byte_at(const void* pointer) const {
    return are_there_ && whole_.key(pointer, 1).key == kNoKey && cut_.key(pointer, 1).key == kNoKey;
  }

 private:
  bool covers_in_pieces(const void* block, uint64_t bytes) const {
    auto* at = static_cast<const std::byte*>(block);
    while (bytes > 0) {
      const KeyedRange piece = cut_.key(at, bytes);
      if (piece.key == kNoKey || piece.bytes > kMiB) return false;
      at += piece.bytes;
      bytes -= piece.bytes;
    }
    return true;
  }

  test::FakeDevice whole_device_, cutting_device_;  // they outlive the tables
  KeyTable whole_, cut_;
  bool are_there_ = false;
};

struct ExplicitAllocator {
  const char* name;
  void* (*allocate)(size_t bytes);
  void (*release)(void* block, size_t bytes);
};

constexpr ExplicitAllocator kExplicitAllocators[] = {
    {"pool_resource", [](size_t bytes) { return pool_resource()->allocate(bytes); },
     [](void* block, size_t bytes) { pool_resource()->deallocate(block, bytes); }},
    {"PoolAllocator", [](size_t bytes) -> void* { return PoolAllocator<char>().allocate(bytes); },
     [](void* block, size_t bytes) {
       PoolAllocator<char>().deallocate(static_cast<char*>(block), bytes);
     }},
    {"pool_allocate", [](size_t bytes) { return pool_allocate(bytes, kCacheLineBytes); },
     [](void* block, size_t) { pool_free(block); }},
    {"bp_alloc", &bp_alloc, [](void* block, size_t) { bp_free(block); }},
};

const char kConstant[] = "a constant of the program";
int static_data = 1;

}  // namespace

// In a process of its own, because a segment of the process's pool cannot be removed.
BP_PROBE(KeysOfBuffers) {
  const BufferPool::Options options = {.buffer_bytes = 100 * kKiB, .buffer_count = 30};
  auto created = process_pool().create_segment("buffers", 4 * kMiB, PageSize::k4KiB, 1);
  const auto memory =
      process_pool().carve(*created.value(), "buffers", BufferPool::bytes_for(options));
  BufferPool* buffers = BufferPool::create(memory, options);
  const Keys keys;
  for (uint32_t i = 0; i < options.buffer_count; ++i) {
    BP_PROBE_CHECK(keys.cover(buffers->try_take(0), options.buffer_bytes));
  }
}

BP_PROBE(KeysOfAnOrdinaryHeap) {
  auto created = process_pool().create_segment("buffers", 4 * kMiB, PageSize::k4KiB, 1);
  const Keys keys;
  BP_PROBE_CHECK(keys.cover(created.value()->address, 4 * kMiB));
  BP_PROBE_CHECK(keys.cover_no_byte_at(test::allocate(100)));
  BP_PROBE_CHECK(keys.cover_no_byte_at(test::allocate(5 * kMiB)));
}

TEST_GROUP(KeyOfBlocks) {
  Keys keys;

  void check_covered(const ExplicitAllocator& allocator) {
    for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{300'000}, 5 * kMiB}) {
      void* block = test::keep(allocator.allocate(bytes));
      CHECK_TEXT(keys.cover(block, bytes), allocator.name);
      allocator.release(block, bytes);
    }
  }
};

TEST(KeyOfBlocks, EveryExplicitBlockHasKeysToItsLastByte) {
  BP_SKIP_UNDER_SANITIZER();
  for (const ExplicitAllocator& allocator : kExplicitAllocators) check_covered(allocator);
}

TEST(KeyOfBlocks, SoHasABlockOfMallocThatIsThePools) {
  BP_SKIP_UNDER_SANITIZER();
  check_covered({"malloc", &std::malloc, [](void* block, size_t) { std::free(block); }});
}

TEST(KeyOfBlocks, SoHasABufferOfACarve) { BP_CHECK_PROBE(KeysOfBuffers); }

TEST(KeyOfBlocks, ABlockOfAnOrdinaryHeapHasNone) {
  BP_SKIP_UNDER_SANITIZER();
  BP_CHECK_PROBE(KeysOfAnOrdinaryHeap, "BEDPLATE_LEAVE_PINNED=no");
}

TEST(KeyOfBlocks, MemoryOfTheProgramHasNone) {
  int on_the_stack = 0;
  void* mapping = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(keys.cover_no_byte_at(&on_the_stack));
  CHECK(keys.cover_no_byte_at(kConstant));
  CHECK(keys.cover_no_byte_at(&static_data));
  CHECK(keys.cover_no_byte_at(mapping));
  munmap(mapping, 4096);
}
