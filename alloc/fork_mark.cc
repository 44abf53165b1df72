// Tested by tests/alloc/fork_test.cc.
#include "alloc/fork_mark.h"

#include <sys/mman.h>

#include "platform/assert.h"

namespace bedplate {

constinit ForkMark fork_mark;

namespace {
constinit bool heap_exists = false;  // a child has its parent's value
}

void mark_heap_owner() noexcept {
  BP_ASSERT(!heap_exists);
  const int outcome = madvise(&fork_mark, sizeof fork_mark, MADV_WIPEONFORK);
  BP_ASSERT(outcome == 0);
  fork_mark.is_owner = true;
  heap_exists = true;
}

void mark_heap_private() noexcept {
  BP_ASSERT(!heap_exists);
  fork_mark.is_owner = true;
  heap_exists = true;
}

bool is_forked_child() noexcept { return heap_exists && !fork_mark.is_owner; }

}  // namespace bedplate
