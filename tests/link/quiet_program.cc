// References none of malloc, free, new and delete: only libc calls malloc on its behalf. Without -u
// the linker would extract nothing from libbedplate-malloc.a.
#include <cstdio>
#include <cstring>

#include "pinned_pool/layout.h"

int main() {
  const char* copy = strdup("text");
  std::printf("strdup: %s\n", bedplate::in_pool_range(copy) ? "pool" : "own");
}
