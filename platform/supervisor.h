// Tells the supervisor of this process (systemd, or whoever speaks its protocol, sd_notify(3)) how
// far it is: datagrams of lines NAME=VALUE to the Unix socket that NOTIFY_SOCKET names.
//
// Nothing waits for the supervisor. A message that it does not take at once is lost; a caller that
// must be heard says it again. If NOTIFY_SOCKET is not set there is no supervisor, and all of this
// does nothing.
#pragma once

#include <cstdint>

#include <sys/socket.h>
#include <sys/un.h>

#include "platform/file.h"
#include "platform/result.h"

namespace bedplate {

// Threads: any, but for open(). Nothing is allocated. A function with a bool returns whether the
// supervisor took the message.
class Supervisor {
 public:
  // Reads the environment, and takes what it read out of it: programs that this one starts do not
  // speak for it. Requires: called once, before other threads, and before root is given up.
  // Errors (kSystem): NOTIFY_SOCKET names no socket that can be had. There is no supervisor then.
  Result<void> open() noexcept;
  bool is_there() const noexcept { return socket_.is_open(); }

  // The process serves.
  bool ready() noexcept { return send("READY=1"); }
  // The process ends, and takes at most so long.
  bool stopping(uint64_t patience_ns) noexcept;
  // A line for people, which stays until the next one.
  bool status(const char* text) noexcept { return send("STATUS=%s", text); }
  // The same, and start or stop may go on for so long from now on, whatever the unit's timeout is.
  bool status(const char* text, uint64_t patience_ns) noexcept;
  // All is well, as far as its watchdog is concerned.
  bool alive() noexcept { return send("WATCHDOG=1"); }
  // How soon after one alive() the next one must come; 0: it has no watchdog for this process.
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
