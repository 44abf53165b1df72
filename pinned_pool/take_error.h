// Explains why memory for a segment could not be taken, with the cure: limits, another mapping in
// the address range, a sandbox that forbids memfds, missing hugepages.
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

// The error (kSystem) of `attempt`, whose `step` failed with `error_number`, an errno value;
// ECANCELED means that a stop signal interrupted it. Allocates nothing: segment 0 is made inside
// the first malloc.
Error take_error(const TakeAttempt& attempt, TakeStep step, int error_number) noexcept;

// The beginning of a cure for the limit of locked memory: it says how this process can exceed the
// limit, and ends with "or: ". Static text.
const char* cure_for_lock_limit() noexcept;

// Whether the kernel overcommits no memory (vm.overcommit_memory = 2).
bool promises_strictly() noexcept;

// Whether a file may be that large (RLIMIT_FSIZE). Called before the file grows: exceeding the
// limit raises a signal that ends the process.
bool may_make_file_of(uint64_t bytes) noexcept;

}  // namespace bedplate
