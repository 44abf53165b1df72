// The end of taking memory: seals the pool, locks the program beside it, proves that malloc uses
// the pool, and audits the maps of the process.
//
//     seal()              pin pages that no device has registered, lock the program, seal the pool,
//                         install the filter of system calls, prove malloc, limit heap owners
//     audit()             the maps of the process are those of the pool
//     report_ways_back()  the log lists the ways back that are open, and those that only libc stops
//
// Threads: the main thread. The shards' threads exist, and wait.
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
  // Requires: called once; everything is carved. Errors: the program cannot be locked; the filter
  // cannot be installed; malloc does not use the pool, although [alloc] expect = "pool".
  Result<void> seal(const Configuration& configuration, PinnedPool& pool);
  // Errors: the maps differ from `map`, or cannot be read.
  static Result<void> audit(const PoolMap& map) noexcept;
  static void report_ways_back(const char* appliance, const PinnedPool& pool) noexcept;

  // The level that seal() has proved.
  SupportLevel support_level() const noexcept { return support_level_; }

 private:
  void pin_pages(PinnedPool& pool);
  Result<void> prove_support(HeapExpectation expected) noexcept;

  PagePin page_pin_;
  SupportLevel support_level_ = SupportLevel::kNone;
};

}  // namespace bedplate
