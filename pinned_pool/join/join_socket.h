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
// Errors: the path is empty or too long (kConfiguration), another process serves it, it is no
// socket, or the system's.
Result<Fd> listen_for_joiners(const char* path) noexcept;

// Holds a socket of listen_for_joiners() for a later server (JoinServerOptions::listener). Its
// destructor closes the socket and removes its file, unless a server has taken the socket over. A
// move into an open listener would leave the file of that listener.
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
// monotonic_ns(). Each later send or receive waits at most as long as was left until the deadline
// when this connected, and at least 1 ms.
// Errors: the path is empty or too long (kConfiguration), no owner until the deadline, no access to
// the path, or the system's.
Result<Fd> connect_to_owner(const char* path, uint64_t deadline_ns) noexcept;

// Raises this process's limit of open files to `count` if it is lower. Errors: `count` is over the
// hard limit, and this process may not raise that.
Result<void> allow_open_files(uint64_t count) noexcept;

}  // namespace bedplate
