// The last error of a thread, which bp_error_text says: a part of its own, so that a program takes
// of the archive only what it uses.
#pragma once

#include "platform/result.h"

namespace bedplate {

// Keeps `error` as what bp_error_text says in this thread. Returns -1.
int c_fail(const Error& error) noexcept;
// What was kept last.
const Error& c_last_error() noexcept;

}  // namespace bedplate
