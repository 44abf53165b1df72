// Signals by which the kernel reports a failed call, besides the call's error.
#pragma once

namespace bedplate {

// From now on a failed call of this process only returns its error: `signal_number`, SIGXFSZ
// (EFBIG: a write beyond the limit of a file's size) or SIGPIPE (EPIPE: the reader is gone), is
// ignored if it would end the process. A handler that the program has installed stays. Programs
// that this process starts inherit this (signal(7)).
void keep_alive_on(int signal_number) noexcept;

}  // namespace bedplate
