#include "apps/boot/pool_sealing.h"

#include <sys/mman.h>

#include "alloc/heap_owner.h"
#include "alloc/interception.h"
#include "pinned_pool/audit.h"
#include "pinned_pool/memory_error.h"
#include "pinned_pool/no_way_back.h"
#include "pinned_pool/seccomp_filter.h"
#include "pinned_pool/take_error.h"
#include "platform/log.h"

namespace bedplate {
namespace {

// Locks program text, static data and the main stack: they must not fault either, although they are
// outside the pool. An ordinary heap is mostly untouched address space: only its touched pages are
// locked.
Result<void> lock_program() {
  const bool is_ordinary = interception_decision().backing == HeapBacking::kOrdinary;
  if (mlockall(MCL_CURRENT | (is_ordinary ? MCL_ONFAULT : 0)) == 0) return {};
  return error_from_errno("locking the program in memory")
      .set_cure("%sulimit -l unlimited", cure_for_lock_limit());
}

// The plan has checked that these owners exist.
void limit_heap_owners(const Configuration& configuration) {
  for (const LimitSettings& limit : configuration.limits) {
    limit_heap_owner(heap_owner(OwnerName(limit.owner)).take(), limit.bytes);
  }
}

}  // namespace

Result<void> PoolSealing::seal(const Configuration& configuration, PinnedPool& pool) {
  pin_pages(pool);
  BP_TRY(lock_program());
  report_memory_errors();
  pool.seal();
  if (configuration.pool.enforce == Enforcement::kSeccomp) {
    BP_TRY(install_seccomp_filter(kPoolBase, kPoolBase + kPoolSpanBytes));
    pool.add_stoppers(kSeccompStops);
  }
  BP_TRY(prove_support(configuration.alloc.expect));
  limit_heap_owners(configuration);  // after the proof, whose blocks have no owner
  return {};
}

// The pool has no registered device when every shard's sockets go through epoll and there are no
// verbs. Its pages are pinned here then.
void PoolSealing::pin_pages(PinnedPool& pool) {
  if ((pool.stoppers() & kPinStops) != 0) return;
  if (auto held = page_pin_.create(pool); !held.ok()) log_error(held.error());
}

Result<void> PoolSealing::prove_support(HeapExpectation expected) noexcept {
  const SupportProof proof = prove_support_level(&munmap_is_refused);
  support_level_ = proof.level;
  if (proof.failed_allocator == nullptr || interception_decision().backing != HeapBacking::kPool)
    return {};
  Error error = error_while("proving that malloc uses the pool")
                    .set_answer("%s: %s", proof.failed_allocator, proof.failure)
                    .set_cure("give the heap 4 MB more ([pool] bytes), or find what else defines "
                              "%s",
                              proof.failed_allocator);
  if (expected == HeapExpectation::kPool) return error;
  log_error(error);
  return {};
}

Result<void> PoolSealing::audit(const PoolMap& map) noexcept {
  auto audited = audit_maps(map, 0);
  if (!audited.ok()) return audited.error();
  if (audited.value().ok) return {};
  return error_while("auditing the pool")
      .set_answer("%s", audited.value().text)
      .set_cure("this is a defect, or a tool has changed the maps of this process");
}

void PoolSealing::report_ways_back(const char* appliance, const PinnedPool& pool) noexcept {
  const uint32_t stoppers = pool.stoppers();
  char ways_back[512];
  if (list_ways_back(stoppers, WayBackState::kOpen, ways_back, sizeof ways_back) > 0) {
    BP_LOG_WARNING("%s: not prevented here: %s (docs/pool.md)", appliance, ways_back);
  }
  if (list_ways_back(stoppers, WayBackState::kStoppedInLibc, ways_back, sizeof ways_back) > 0) {
    BP_LOG_INFO("%s: refused in libc, but not as raw system calls (that needs [pool] enforce = "
                "\"seccomp\"): %s",
                appliance, ways_back);
  }
}

}  // namespace bedplate
