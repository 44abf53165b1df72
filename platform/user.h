// Users of the system, by name or number.
#pragma once

#include <cstdint>

#include "platform/result.h"

namespace bedplate {

// The number of the user `text`: digits as they are, else the name's in /etc/passwd. Only there:
// a static program cannot ask the services behind nsswitch, so users from elsewhere are written as
// numbers.
// Errors: no such user (kConfiguration).
Result<uint32_t> find_user_id(const char* text) noexcept;

// Whether processes of that user can do to this process whatever they like (ptrace(2)): root's, and
// those of its own.
bool is_own_user(uint32_t id) noexcept;

}  // namespace bedplate
