// The socket over which processes join: opened by the owner, connected to by the joiner. What is
// said over it is join_protocol.h's. Threads: any.
#pragma once

#include <cstdint>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Listens at `path`, non-blocking. Any user can connect: whether it may join depends on the user
// (SO_PEERCRED), not on the file's mode. A socket that a dead owner left is replaced.
// Errors: the path is too long, somebody serves it, it is something else, or the system's.
Result<Fd> listen_for_joiners(const char* path) noexcept;

// Connects to the owner at `path`; waits for it to be there until `deadline_ns`, on the clock of
// monotonic_ns(). Sending and receiving have the same deadline then.
Result<Fd> connect_to_owner(const char* path, uint64_t deadline_ns) noexcept;

// Raises this process's limit of open files to `count` where it is lower.
Result<void> allow_open_files(uint64_t count) noexcept;

}  // namespace bedplate
