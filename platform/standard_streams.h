// Descriptors 0 to 2 are open before this process opens any other.
//
// Programs are started with some of them closed (`program 2>&-`, a supervisor that is careless, a
// kernel without a console). The next file that is opened then gets the number, and whatever is
// printed goes into that file: into the pool, if it is the memfd of a segment.
#pragma once

namespace bedplate {

// Opens those of descriptors 0 to 2 that are closed, on /dev/null: 0 to read, 1 and 2 to write, and
// to be inherited. If /dev/null cannot be opened, the stand-in refuses both (EBADF), as a closed
// descriptor does. Allocates nothing. Changes errno.
// Threads: the first call comes before others open files.
void hold_standard_streams() noexcept;

// Whether `stream` (0 to 2) was closed, and was opened by hold_standard_streams().
bool stands_in(int stream) noexcept;

}  // namespace bedplate
