// The socket over which processes join: opened by the owner, connected to by the joiner. What is
// said over it is join_protocol.h's. Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Listens at `path`, non-blocking. Any user can connect: whether it may join depends on the user
// (SO_PEERCRED), not on the file's mode. A socket that a dead owner left is replaced.
// Errors: the path is too long, somebody serves it, it is something else, or the system's.
Result<Fd> listen_for_joiners(const char* path) noexcept;

// Such a socket before there is a server that it is for (JoinServerOptions::listener): it goes with
// its file, unless that has taken it over.
class JoinListener {
 public:
  JoinListener() noexcept = default;
  JoinListener(JoinListener&&) noexcept = default;
  JoinListener& operator=(JoinListener&&) noexcept = default;
  ~JoinListener();

  // Errors: listen_for_joiners()'s. Requires: it is not open.
  Result<void> open(const std::string& path) noexcept;
  bool is_open() const noexcept { return fd_.is_open(); }
  int number() const noexcept { return fd_.number(); }
  // The caller closes it, and removes its file.
  Fd take() noexcept { return std::move(fd_); }

 private:
  std::string path_;
  Fd fd_;
};

// Connects to the owner at `path`; waits for it to be there until `deadline_ns`, on the clock of
// monotonic_ns(). Sending and receiving have the same deadline then.
Result<Fd> connect_to_owner(const char* path, uint64_t deadline_ns) noexcept;

// Raises this process's limit of open files to `count` where it is lower.
Result<void> allow_open_files(uint64_t count) noexcept;

}  // namespace bedplate
