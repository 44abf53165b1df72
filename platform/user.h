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

}  // namespace bedplate
