// A typical third-party shared library: it knows nothing of Bedplate, and calls malloc, free, new
// and delete. tests/link/dlopen_program.cc opens it.
#include <cstdlib>
#include <cstring>
#include <string>

#include <malloc.h>

namespace {
// Allocated by the library's own constructors, freed when it is closed.
std::string* const loaded = new std::string(1000, 'l');
struct AtUnload {
  ~AtUnload() { delete loaded; }
} at_unload;
}  // namespace

extern "C" {

const void* library_loaded() { return loaded->data(); }

// Allocates with the function that has the number `function`. Returns nullptr if there is none.
// (pvalloc is left out: jemalloc, which tests preload, does not have it.)
void* library_allocate(int function, size_t bytes) {
  void* block = nullptr;
  switch (function) {
    case 0: return std::malloc(bytes);
    case 1: return std::calloc(1, bytes);
    case 2: return std::realloc(std::malloc(1), bytes);
    case 3: return reallocarray(nullptr, 1, bytes);
    case 4: return memalign(64, bytes);
    case 5: return std::aligned_alloc(64, bytes);
    case 6: return posix_memalign(&block, 64, bytes) == 0 ? block : nullptr;
    case 7: return valloc(bytes);
    case 8: return strdup("libc calls malloc");
    default: return nullptr;
  }
}

void library_free(void* block) { std::free(block); }
size_t library_usable_bytes(void* block) { return malloc_usable_size(block); }
std::string* library_new(const char* text) { return new std::string(text); }
void library_delete(std::string* text) { delete text; }
}
