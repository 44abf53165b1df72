// Standard error, written without waiting for its reader.
//
// Its file description is shared with other processes (the shell, the service manager), so
// O_NONBLOCK is never set on it: that would change it for all of them. Instead each call is
// non-blocking by itself: MSG_DONTWAIT on a socket, RWF_NOWAIT on a pipe, and an own description
// (/proc/self/fd/2 opened again) for a terminal, a named pipe, and any pipe before Linux 6.4. Files
// and other devices are written normally.
//
// If /proc/self/fd/2 cannot be opened (no /proc, no free descriptor, another user's file), text for
// a pipe is spliced from a private pipe with SPLICE_F_NONBLOCK, one page for each text; a pipe
// holds 16. For a terminal, and if splice is impossible too, the code first checks for space. The
// write can then still block if another process fills the pipe or the terminal at that moment.
#pragma once

#include <cstddef>
#include <sys/types.h>

namespace bedplate {

// Writes as much as fits now. Returns the number of bytes written; -1 with errno, EAGAIN if nothing
// fits. A pipe takes a text of up to PIPE_BUF bytes whole or not at all. A pipe without a reader
// raises SIGPIPE; a socket does not. Allocates nothing, locks nothing: fit for signal handlers.
ssize_t write_standard_error_now(const char* text, size_t text_bytes) noexcept;

// Waits until there may be space, or until `wait_ms` are over. Requires: wait_ms >= 0.
void wait_for_standard_error(int wait_ms) noexcept;

bool standard_error_is_terminal() noexcept;

}  // namespace bedplate
