// Keeps descriptors 0 to 2 open before this process opens any other.
//
// A program may be started with some of them closed (`program 2>&-`, a careless supervisor, a
// kernel without a console). The next opened file then gets the free number, and all output to the
// stream goes into that file: into the pool, if it is the memfd of a segment.
#pragma once

namespace bedplate {

// Opens the closed ones of descriptors 0 to 2 on /dev/null: 0 for reading, 1 and 2 for writing, all
// to be inherited. If /dev/null cannot be opened, it opens a stand-in that refuses reads and writes
// (EBADF), as a closed descriptor does. Allocates nothing. Changes errno.
// Threads: the first call comes before other threads open files.
void hold_standard_streams() noexcept;

// Whether `stream` (0 to 2) was closed, and hold_standard_streams() opened it.
bool stands_in(int stream) noexcept;

}  // namespace bedplate
