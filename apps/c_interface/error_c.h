// Keeps the last error of a thread, for bp_error_text and its parts. It has a file of its own, so
// that a program links only the parts of the archive that it uses.
#pragma once

#include "platform/result.h"

namespace bedplate {

// Threads: each function handles the error of the calling thread.

// Keeps `error` as the text of bp_error_text. Returns -1.
int c_fail(const Error& error) noexcept;
// The last error that was kept; its texts are empty if none was kept since c_forget_error().
const Error& c_last_error() noexcept;
// Removes the kept error: bp_error_text is then "".
void c_forget_error() noexcept;

}  // namespace bedplate
