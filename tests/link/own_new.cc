// A program's own operator new, as games and databases have. It is not the pool's, and the runtime
// must detect it, whichever malloc the program has.
#include <cstddef>
#include <new>

namespace {
alignas(64) char arena[16 << 20];
std::size_t used_bytes = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  void* block = arena + used_bytes;
  used_bytes += (bytes + 63) / 64 * 64;
  if (used_bytes > sizeof arena) __builtin_trap();
  return block;
}
void operator delete(void*) noexcept {}
void operator delete(void*, std::size_t) noexcept {}
