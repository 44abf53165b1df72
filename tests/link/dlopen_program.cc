// Opens a library that calls malloc and free, and passes blocks in both directions: each side frees
// blocks of the other. Exits with 0 if all blocks were in the memory that the first argument names
// ("pool" or "own"); otherwise prints the checks that failed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>

#include "alloc/confined_heap.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/units.h"

using namespace bedplate;

namespace {

bool wants_pool = false;
int failure_count = 0;

void check(bool condition, const char* what, int number = 0) {
  if (condition) return;
  std::printf("not so: %s (%d)\n", what, number);
  ++failure_count;
}

bool is_where_it_belongs(const void* block) {
  return block != nullptr && in_pool_range(block) == wants_pool;
}

template <typename Function>
Function* find(void* library, const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  check(function != nullptr, name);
  return function;
}

uint64_t used_bytes() {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < heap_arena_count(); ++i) bytes += heap_arena_use(i).used_bytes;
  return bytes;
}

void exchange_blocks(void* library) {
  auto* const library_allocate = find<void*(int, size_t)>(library, "library_allocate");
  auto* const library_free = find<void(void*)>(library, "library_free");
  auto* const library_usable_bytes = find<size_t(void*)>(library, "library_usable_bytes");
  for (const size_t bytes : {size_t{64}, size_t{64} * kKiB, 6 * kMiB}) {
    int function = 0;
    for (; void* block = library_allocate(function, bytes); ++function) {
      check(is_where_it_belongs(block), "a block of the library's", function);
      check(library_usable_bytes(block) > 0, "the library can ask for its size", function);
      std::free(block);
    }
    check(function == 9, "the library allocates with nine functions", function);
    void* block = std::malloc(bytes);
    check(is_where_it_belongs(block), "a block of the program's");
    library_free(block);
  }
  // A block that a wrong heap freed would stay in use.
  const uint64_t before = used_bytes();
  for (int round = 0; round < 200; ++round) {
    library_free(std::malloc(3 * kMiB));
    std::free(library_allocate(0, 3 * kMiB));
  }
  check(used_bytes() == before, "what crossed over was freed");
}

void exchange_objects(void* library) {
  auto* const library_new = find<std::string*(const char*)>(library, "library_new");
  auto* const library_delete = find<void(std::string*)>(library, "library_delete");
  const std::string text(1000, 'x');
  std::string* theirs = library_new(text.c_str());
  check(is_where_it_belongs(theirs) && is_where_it_belongs(theirs->data()), "an object of theirs");
  check(*theirs == text, "its content");
  delete theirs;
  library_delete(new std::string(text));
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  wants_pool = std::strcmp(words[1], "pool") == 0;
  void* library = dlopen(words[2], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  check(is_where_it_belongs(find<const void*()>(library, "library_loaded")()),
        "what its constructor took");
  exchange_blocks(library);
  exchange_objects(library);
  check(dlclose(library) == 0, "it can be closed");
  return failure_count == 0 ? 0 : 1;
}
