// Reports the state of this process to its supervisor (systemd, or another that speaks
// sd_notify(3)). Sends datagrams of lines NAME=VALUE to the Unix socket that NOTIFY_SOCKET names.
//
// Nothing waits for the supervisor. A message that the socket does not take at once is lost; a
// caller with an important message sends it again. If NOTIFY_SOCKET is not set there is no
// supervisor, and all of this does nothing.
#pragma once

#include <cstdint>

#include <sys/socket.h>
#include <sys/un.h>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Threads: any, but for open(). Nothing is allocated. A bool tells whether the supervisor's socket
// took the message.
class Supervisor {
 public:
  // Reads the variables of the protocol and removes them from the environment, so that programs
  // started by this process do not use them. Requires: called once, before other threads start, and
  // before root is given up.
  // Errors (kSystem): NOTIFY_SOCKET names no usable socket. There is no supervisor then.
  Result<void> open() noexcept;
  bool is_there() const noexcept { return socket_.is_open(); }

  // Reports that the process is ready to serve.
  bool ready() noexcept { return send("READY=1"); }
  // Reports that the process shuts down within `patience_ns`, with the status "draining".
  bool stopping(uint64_t patience_ns) noexcept;
  // A status line for people, valid until the next one.
  bool status(const char* text) noexcept { return send("STATUS=%s", text); }
  // Sends the status line, and extends the supervisor's timeout: the start or stop under way may
  // take another `patience_ns`, even beyond the timeout that the unit sets.
  bool status(const char* text, uint64_t patience_ns) noexcept;
  // Keepalive for the watchdog.
  bool alive() noexcept { return send("WATCHDOG=1"); }
  // The longest allowed time between two alive(); 0: no watchdog for this process.
  uint64_t watchdog_ns() const noexcept { return watchdog_ns_; }

 private:
  Result<void> connect_to(const char* name) noexcept;
  bool send(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

  Fd socket_;
  sockaddr_un address_ = {};
  socklen_t address_bytes_ = 0;
  uint64_t watchdog_ns_ = 0;
};

}  // namespace bedplate
