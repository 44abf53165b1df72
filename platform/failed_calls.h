// Signals by which the kernel reports a failed call, besides the call's error.
#pragma once

namespace bedplate {

// Ignores `signal_number` from now on, if it would end the process: the failed call only returns
// its error. SIGXFSZ: a write beyond the limit of a file's size returns EFBIG. SIGPIPE: a write
// whose reader is gone returns EPIPE. A handler that the program has installed stays. Programs that
// this process starts inherit this (signal(7)).
// Requires: SIGXFSZ or SIGPIPE.
void keep_alive_on(int signal_number) noexcept;

}  // namespace bedplate
