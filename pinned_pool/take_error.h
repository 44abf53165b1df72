// Why memory for a segment could not be taken, and what to do about it: limits, a range of
// addresses that something else lies in, a sandbox that forbids memfds, hugepages that are missing.
#pragma once

#include <cstdint>

#include "pinned_pool/owner_name.h"
#include "platform/hugepage.h"
#include "platform/result.h"

namespace bedplate {

struct TakeAttempt {
  const OwnerName& owner;
  uint64_t bytes;
  PageSize page;
  int node;
  const void* address;
  bool is_private = false;
};

enum class TakeStep { kMakeFile, kSizeFile, kMap, kBind, kPopulate, kSealFile, kLookAtFile };

// The error of `attempt`, whose `step` was answered with `error_number`. Allocates nothing: segment
// 0 is made inside the first malloc.
Error take_error(const TakeAttempt& attempt, TakeStep step, int error_number) noexcept;

// The beginning of a cure where the limit of locked memory is in the way: what lets this process
// pass it. Static.
const char* way_past_the_lock_limit() noexcept;

// Whether memory is promised strictly (vm.overcommit_memory = 2).
bool promises_strictly() noexcept;

// Whether a file may be that large (RLIMIT_FSIZE). To be asked before: the system's answer is a
// signal that ends the process.
bool may_make_file_of(uint64_t bytes) noexcept;

}  // namespace bedplate
