// Uses the pool like C++ programs that keep their own malloc: pool_resource(), PoolAllocator and a
// BufferPool. Prints the owner of the memory that these, malloc and new return.
//
// tests/link/run.py links it as docs/allocator.md says. Each line is `what: value`.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "alloc/buffer_pool_datapath.h"
#include "alloc/pool_allocator.h"
#include "alloc/pool_resource.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"

using namespace bedplate;

namespace {

void tell(const char* what, const void* block, uint64_t bytes) {
  // The compiler would remove blocks that are not used.
  asm volatile("" : "+r"(block) : : "memory");
  const char* owner = process_pool().contains(block, bytes) ? "pool" : "own";
  std::printf("%s: %s\n", what, block == nullptr ? "nothing" : owner);
}

void tell_malloc_and_new(const std::string& when) {
  constexpr size_t kBytes = 5 * kMiB;
  void* block = std::malloc(kBytes);
  tell(("malloc " + when).c_str(), block, kBytes);
  std::free(block);
  const std::vector<int> numbers(1000, 7);
  tell(("vector " + when).c_str(), numbers.data(), 1000 * sizeof(int));
}

void tell_containers() {
  std::pmr::vector<std::pmr::string> words(100, pool_resource());
  words[7].assign(1000, 'x');  // an element's memory comes from the resource, too
  tell("pool_resource", words.data(), 100 * sizeof words[0]);
  tell("pool_resource, inner", words[7].data(), 1000);
  std::vector<double, PoolAllocator<double>> samples(1'000'000, 0.5);
  tell("PoolAllocator", samples.data(), samples.size() * sizeof(double));
  const auto shared = std::allocate_shared<int>(PoolAllocator<int>(), 7);
  tell("PoolAllocator, rebound", shared.get(), sizeof(int));
}

void tell_buffers() {
  const BufferPool::Options options = {.buffer_bytes = 4 * kKiB, .buffer_count = 100};
  auto created = process_pool().create_segment("buffers", kMiB, PageSize::k4KiB, 1);
  if (!created.ok()) {
    std::printf("BufferPool: %s\n", created.error().answer);
    return;
  }
  const auto memory =
      process_pool().carve(*created.value(), "buffers", BufferPool::bytes_for(options));
  BufferPool* buffers = BufferPool::create(memory, options);
  std::byte* buffer = buffers->try_take(0);
  tell("BufferPool", buffer, options.buffer_bytes);
  buffers->give_back(0, buffer);
}

}  // namespace

int main() {
  tell_malloc_and_new("before");
  tell_containers();
  tell_buffers();
  tell_malloc_and_new("after");
  return 0;
}
