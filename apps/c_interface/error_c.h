// The last error of a thread, which bp_error_text says. It has a file of its own, so that a program
// links only the parts of the archive that it uses.
#pragma once

#include "platform/result.h"

namespace bedplate {

// Keeps `error` as what bp_error_text says in this thread. Returns -1.
int c_fail(const Error& error) noexcept;
// The error that was kept last; its texts are empty if none was since c_forget_error().
const Error& c_last_error() noexcept;
void c_forget_error() noexcept;

}  // namespace bedplate
