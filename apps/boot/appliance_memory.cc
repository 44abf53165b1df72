#include "apps/boot/appliance_memory.h"

#include <cinttypes>
#include <iterator>
#include <span>
#include <vector>

#include "alloc/boot_growth.h"
#include "alloc/confined_heap.h"
#include "alloc/heap_owner.h"
#include "pinned_pool/take_error.h"
#include "platform/cpu.h"
#include "platform/log.h"
#include "platform/surplus_hugepages.h"

namespace bedplate {
namespace {

// Counts surplus hugepages, which the kernel makes on demand. The count is exact for this pool if
// no other process takes hugepages at the same time.
struct SurplusPages {
  static constexpr PageSize kSizes[] = {PageSize::k2MiB, PageSize::k1GiB};
  uint64_t counts[2] = {surplus_hugepage_count(kSizes[0]), surplus_hugepage_count(kSizes[1])};

  void tell_more() const noexcept {
    for (size_t i = 0; i < std::size(counts); ++i) {
      const uint64_t now = surplus_hugepage_count(kSizes[i]);
      if (now <= counts[i]) continue;
      BP_LOG_INFO("%" PRIu64 " of these pages of %s are surplus: the kernel added them for this "
                  "process (vm.nr_overcommit_hugepages), and removes them when it ends",
                  now - counts[i], format_bytes(page_bytes(kSizes[i])).text);
    }
  }
};

Error not_locked(const Segment& segment) noexcept {
  return error_while("locking segment %s (%s)", segment.owner.text,
                     format_bytes(segment.bytes).text)
      .set_answer_errno(segment.lock_errno)
      .set_cure("%sulimit -l unlimited", cure_for_lock_limit());
}

// The carves of the heap's segment follow the plan's order: reserve, memory, parts kept for owners.
Result<HeapParts> hand_over_heap(const AppliancePlan& plan, PinnedPool& pool) {
  BP_ASSERT(plan.pool.segments.size() > 1 && pool.find_segment("heap") == &pool.segment(1));
  Segment& heap = pool.segment(1);
  const std::vector<CarvePlan>& carves = plan.pool.segments[1].carves;
  BP_ASSERT(heap.carved_bytes == 0 && carves.size() >= 2);
  HeapParts parts = {pool.segment(0).memory()};
  bool are_added = true;
  for (size_t i = 0; i < carves.size(); ++i) {
    const std::span<std::byte> part = pool.carve(heap, carves[i].owner, carves[i].bytes);
    parts.push_back(part);
    if (i == 1) {
      are_added = add_heap_memory(part) && are_added;
      continue;
    }
    HeapOwner owner = kRuntimeOwner;
    if (i > 1) {
      BP_TRY_ASSIGN(owner,
                    heap_owner(OwnerName(carves[i].owner.view().substr(kKeptHeap.size() + 1))));
    }
    are_added = add_heap_reserve(part, owner) && are_added;
  }
  if (!are_added) {
    return error_while("handing %s to the heap", format_bytes(heap.bytes).text)
        .set_answer("its tables do not fit into segment 0")
        .set_cure("raise BEDPLATE_BOOT_BYTES, or make the pool smaller");
  }
  retire_boot_heap();
  end_boot_growth();
  return parts;
}

}  // namespace

Result<HeapParts> take_memory(const AppliancePlan& plan, PinnedPool& pool) {
  const SurplusPages before;
  BP_TRY(pool.reserve(plan.pool, static_cast<unsigned>(usable_cpu_count())));
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    if (segment.lock_errno != 0) return not_locked(segment);
    BP_LOG_INFO("%s: %s in pages of %s on %s", segment.owner.text, format_bytes(segment.bytes).text,
                format_bytes(page_bytes(segment.page)).text, format_node(segment.node).text);
  }
  before.tell_more();
  return hand_over_heap(plan, pool);
}

}  // namespace bedplate
