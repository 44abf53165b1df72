#include "alloc/fork_mark.h"

#include <atomic>
#include <cerrno>
#include <new>

#include <sys/mman.h>

#include "platform/assert.h"
#include "platform/forbidden_calls.h"

namespace bedplate {

constinit ForkMark fork_mark;

namespace {

constinit bool heap_exists = false;  // a child inherits the value

// In the shared heap: the process and its children use one flag.
constinit std::atomic<bool>* child_notice = nullptr;

}  // namespace

Result<void> mark_heap_owner() noexcept {
  BP_ASSERT(!heap_exists);
  if (madvise(&fork_mark, sizeof fork_mark, MADV_WIPEONFORK) != 0) {
    Error error =
        error_from_errno("marking a page that tells a forked child from its parent (madvise)");
    if (says_forbidden(errno)) return set_cure_of_forbidden(&error, "madvise");
    return error.set_cure("use Linux 4.14 or newer (MADV_WIPEONFORK)");
  }
  fork_mark.is_owner = true;
  heap_exists = true;
  return {};
}

void mark_heap_private() noexcept {
  BP_ASSERT(!heap_exists);
  fork_mark.is_owner = true;
  heap_exists = true;
}

void share_child_notice(void* memory) noexcept { child_notice = new (memory) std::atomic<bool>; }

bool claim_child_notice() noexcept {
  return !child_notice->exchange(true, std::memory_order_relaxed);
}

bool is_forked_child() noexcept { return heap_exists && !fork_mark.is_owner; }

}  // namespace bedplate
