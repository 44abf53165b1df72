// Tested by tests/alloc/fork_test.cc.
#include "alloc/fork_mark.h"

#include <atomic>
#include <cerrno>

#include <sys/mman.h>

#include "platform/assert.h"
#include "platform/forbidden_calls.h"

namespace bedplate {

constinit ForkMark fork_mark;

namespace {

constinit bool heap_exists = false;  // a child has its parent's value

// A page of the process and its children together.
struct alignas(4096) ChildNotice {
  std::atomic<bool> is_claimed{false};
};
constinit ChildNotice child_notice;

// Where that fails each child has one of its own.
void share_child_notice() noexcept {
  mmap(&child_notice, sizeof child_notice, PROT_READ | PROT_WRITE,
       MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

}  // namespace

Result<void> mark_heap_owner() noexcept {
  BP_ASSERT(!heap_exists);
  if (madvise(&fork_mark, sizeof fork_mark, MADV_WIPEONFORK) != 0) {
    Error error = error_from_errno("having the kernel tell a child from its parent (madvise)");
    if (says_forbidden(errno)) return set_cure_of_forbidden(&error, "madvise");
    return error.set_cure("it takes Linux 4.14 (MADV_WIPEONFORK)");
  }
  share_child_notice();
  fork_mark.is_owner = true;
  heap_exists = true;
  return {};
}

void mark_heap_private() noexcept {
  BP_ASSERT(!heap_exists);
  fork_mark.is_owner = true;
  heap_exists = true;
}

bool claim_child_notice() noexcept {
  return !child_notice.is_claimed.exchange(true, std::memory_order_relaxed);
}

bool is_forked_child() noexcept { return heap_exists && !fork_mark.is_owner; }

}  // namespace bedplate
