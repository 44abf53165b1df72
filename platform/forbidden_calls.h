// System calls that something above the kernel forbids: a seccomp profile, of a unit
// (SystemCallFilter=) or of a container.
//
// A profile answers before the kernel looks at the arguments, with EPERM or ENOSYS. So a call is
// tried with arguments that can do nothing: any other answer says that it is allowed. A profile
// that looks at arguments may still forbid another use of it; one that kills does so here already.
// Threads: any. Nothing is allocated.
#pragma once

#include <cstddef>
#include <span>

#include "platform/result.h"

namespace bedplate {

// Whether a call with this answer was forbidden, or is unknown to this kernel. Some calls answer
// EPERM for a reason of their own.
bool says_forbidden(int error_number) noexcept;

// Sets the cure of an error whose call was forbidden: to allow `calls` ("recvmmsg, sendmmsg").
Error& set_cure_of_forbidden(Error* error, const char* calls) noexcept;

struct CallTrial {
  const char* name;
  long number;
  // Arguments that do nothing; a kernel that has the call answers neither EPERM nor ENOSYS to them.
  unsigned long arguments[6];
  bool may_be_missing = false;  // ENOSYS is no loss: there is another way then
};

// Tries all of them. Errors: those that are forbidden, by name, with the cure.
Result<void> try_calls(std::span<const CallTrial> trials) noexcept;

}  // namespace bedplate
