// Signals by which the kernel reports a call that failed, beside the call's error.
#pragma once

namespace bedplate {

// From now on, for the whole process, a failed call is only its error: `signal_number`, SIGXFSZ
// (EFBIG: a write beyond the limit of a file's size) or SIGPIPE (EPIPE: its reader is gone), is
// ignored if it would end the process. A handler that the program has installed stays. Programs
// that it starts inherit this, as signal(7) says.
void keep_alive_on(int signal_number) noexcept;

}  // namespace bedplate
