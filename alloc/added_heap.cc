#include "alloc/added_heap.h"

#include <algorithm>
#include <mutex>

#include <pthread.h>

#include "alloc/confined_heap.h"
#include "alloc/exhaustion.h"
#include "alloc/interception_decision.h"
#include "pinned_pool/boot_segment.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "platform/cpu.h"

namespace bedplate {
namespace {

std::mutex adding;

// Lets a child with a copy of the heap add to it as well: the lock is free there.
void keep_lock_of_copies() noexcept {
  const int outcome =
      pthread_atfork([] { adding.lock(); }, [] { adding.unlock(); }, [] { adding.unlock(); });
  BP_ASSERT(outcome == 0);
}

// Succeeds if the heap may grow by `bytes`; otherwise says why not.
Result<void> check_allowed(const PinnedPool& pool, uint64_t bytes, PageSize page,
                           Error error) noexcept {
  if (is_appliance_expected()) {
    return error.set_answer("the pool belongs to an appliance, and all of it is planned")
        .set_cure("raise [pool] bytes instead");
  }
  if (pool.is_sealed()) {
    return error.set_answer("the pool is sealed: this process has joined it")
        .set_cure("raise heap_bytes in its [[process]] of the owner's configuration");
  }
  if (interception_decision().backing == HeapBacking::kOrdinary) {
    char why[192];
    return error.set_answer("malloc %s", explain_decision(interception_decision(), why, sizeof why))
        .set_cure("choose the pool: BEDPLATE_LEAVE_PINNED=yes");
  }
  if (bytes == 0 || bytes > kPoolSpanBytes) {
    error.kind = ErrorKind::kConfiguration;
    return error.set_answer("this is not a valid heap size").set_cure("give it 4 MiB or more");
  }
  if (pool.segment(0).is_private() && is_huge(page)) {
    error.kind = ErrorKind::kConfiguration;
    return error
        .set_answer("a fork copies this program's heap, and the copy of a page of %s needs another "
                    "free page",
                    format_bytes(page_bytes(page)).text)
        .set_cure("ask for pages of 4 KiB, or share the heap with forked children: "
                  "BEDPLATE_FORK=share, or bedplate_fork at link time");
  }
  if (!pool.has_room_for(bytes)) {
    return error.set_answer("the pool has no addresses left, or too many segments")
        .set_cure("add less, in fewer and larger parts");
  }
  return {};
}

}  // namespace

Result<void> add_heap(uint64_t bytes, PageSize page) {
  heap_create();
  PinnedPool& pool = process_pool();
  const uint64_t unit = std::max(kHeapGranularityBytes, page_bytes(page));
  const uint64_t whole_bytes = bytes > kPoolSpanBytes ? bytes : align_up(bytes, unit);
  Error error = error_while("adding %s to the heap", format_bytes(bytes).text);
  const std::lock_guard lock(adding);
  [[maybe_unused]] static const bool keeps_lock = (keep_lock_of_copies(), true);
  boot_segment();  // must exist first, even if nothing was allocated yet
  BP_TRY(check_allowed(pool, whole_bytes, page, error));
  const auto threads = static_cast<unsigned>(usable_cpu_count());
  auto created = pool.segment(0).is_private()
                     ? pool.create_private_segment(kAddedHeapOwner, whole_bytes, threads)
                     : pool.create_segment(kAddedHeapOwner, whole_bytes, page, threads);
  if (!created.ok()) return created.error();
  Segment& segment = *created.value();
  if (add_heap_memory(pool.carve(segment, kAddedHeapOwner, segment.bytes))) return {};
  return error.set_answer("its tables do not fit into segment 0")
      .set_cure("raise BEDPLATE_BOOT_BYTES");
}

Result<void> refuse_added_heap(const char* doing, const char* instead) noexcept {
  if (process_pool().find_segment(kAddedHeapOwner) == nullptr) return {};
  return error_while("%s", doing)
      .set_answer("this program has added memory to its heap (add_heap, bp_add_heap), at the "
                  "addresses of the pool's other segments")
      .set_cure("%s", instead);
}

}  // namespace bedplate
