// System calls that a seccomp profile forbids: the profile of a unit (SystemCallFilter=) or of a
// container.
//
// A profile answers EPERM or ENOSYS before the kernel looks at the arguments. So each call is tried
// with arguments that have no effect: any other answer means that the call is allowed. A profile
// that checks arguments may still forbid another use of the call; a profile that kills the process
// does so during the trial. Threads: any. Nothing is allocated.
#pragma once

#include <cstddef>
#include <span>

#include "platform/result.h"

namespace bedplate {

// Whether this errno value means that a call was forbidden, or that this kernel does not know it:
// EPERM or ENOSYS. Some calls answer EPERM for reasons of their own.
bool says_forbidden(int error_number) noexcept;

// Sets the cure of an error whose call was forbidden: allow `calls` ("recvmmsg, sendmmsg"). Returns
// *error.
Error& set_cure_of_forbidden(Error* error, const char* calls) noexcept;

struct CallTrial {
  const char* name;
  long number;
  // Arguments without effect; a kernel that has the call answers neither EPERM nor ENOSYS.
  unsigned long arguments[6];
  bool may_be_missing = false;  // ENOSYS is no failure: the runtime has a fallback
};

// Tries all calls. Errors (kSystem): the names of the forbidden calls, with the cure; names that do
// not fit into 159 bytes are left out.
Result<void> try_calls(std::span<const CallTrial> trials) noexcept;

}  // namespace bedplate
