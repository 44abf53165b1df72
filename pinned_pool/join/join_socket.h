// The socket over which processes join: the owner listens, the joiner connects. join_protocol.h
// defines the packets. Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Listens at `path`, non-blocking. Any user can connect: the right to join depends on the user
// (SO_PEERCRED), not on the file's mode. Replaces a socket that a dead owner left.
// Errors: the path is too long, another process serves it, it is no socket, or the system's.
Result<Fd> listen_for_joiners(const char* path) noexcept;

// Holds such a socket for a later server (JoinServerOptions::listener). Its destructor closes the
// socket and removes its file, unless a server has taken it over.
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
  // Gives up the socket: the caller closes it and removes its file.
  Fd take() noexcept { return std::move(fd_); }

 private:
  std::string path_;
  Fd fd_;
};

// Connects to the owner at `path`; waits for the owner until `deadline_ns`, on the clock of
// monotonic_ns(). Later sends and receives have the same deadline.
Result<Fd> connect_to_owner(const char* path, uint64_t deadline_ns) noexcept;

// Raises this process's limit of open files to `count` if it is lower.
Result<void> allow_open_files(uint64_t count) noexcept;

}  // namespace bedplate
