// The end of taking memory: the pool is sealed, the program is locked beside it, malloc is proved
// to be the pool's, and the maps of the process are audited.
//
//     seal()              pin pages that no device has registered, lock the program, seal the pool,
//                         install the filter of system calls, prove malloc, limit heap owners
//     audit()             the maps of the process are those of the pool
//     report_ways_back()  the log says which ways to take memory back nothing here stops
//
// Threads: the main thread's; the shards' threads are there and wait: nobody else allocates.
#pragma once

#include "alloc/support_level.h"
#include "apps/configuration/configuration.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/pool_map.h"
#include "platform/result.h"
#include "transport/uring/page_pin.h"

namespace bedplate {

class PoolSealing {
 public:
  // Requires: called once; all has been carved.
  Result<void> seal(const Configuration& configuration, PinnedPool& pool);
  static Result<void> audit(const PoolMap& map) noexcept;
  static void report_ways_back(const char* appliance, const PinnedPool& pool) noexcept;

  // As seal() has proved it.
  SupportLevel support_level() const noexcept { return support_level_; }

 private:
  void pin_pages(PinnedPool& pool);
  Result<void> prove_support(HeapExpectation expected) noexcept;

  PagePin page_pin_;
  SupportLevel support_level_ = SupportLevel::kNone;
};

}  // namespace bedplate
