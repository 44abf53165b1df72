// Standard error, written without waiting for its reader.
//
// Its file description is shared with other processes (the shell's, the service manager's), so it
// is never set to O_NONBLOCK: that would change it for all of them. Instead each call asks for
// itself: MSG_DONTWAIT on a socket, RWF_NOWAIT on a pipe, and a description of one's own for a
// terminal, a named pipe, and any pipe before Linux 6.4 (/proc/self/fd/2 opened again). Files and
// other devices are written as ever.
//
// If that cannot be had (no /proc, no free descriptor, another user's) a pipe is given a page for
// each text, by splice from a pipe of one's own with SPLICE_F_NONBLOCK: it holds 16. If even that
// fails, and for a terminal, it checks first if there is room: another process that fills it at
// this very moment can then still block one line.
#pragma once

#include <cstddef>
#include <sys/types.h>

namespace bedplate {

// Writes what there is room for now. Returns how many bytes that was; -1 with errno, EAGAIN where
// there is no room. A pipe takes a text of up to PIPE_BUF bytes whole or not at all.
// Allocates nothing, locks nothing: fit for signal handlers.
ssize_t write_standard_error_now(const char* text, size_t text_bytes) noexcept;

// Waits until there may be room, `wait_ms` at most.
void wait_for_standard_error(int wait_ms) noexcept;

bool standard_error_is_terminal() noexcept;

}  // namespace bedplate
