// The listening sockets of a service: opened before anything is taken, closed when boot fails.
#pragma once

#include <string>
#include <vector>

#include "platform/file.h"
#include "transport/socket_address.h"

namespace bedplate {

class Listeners {
 public:
  Listeners() noexcept = default;
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;
  // Closes the sockets and removes the files of those on Unix paths.
  ~Listeners();

  // Opens every address; `activation:` takes over what LISTEN_FDS passes (sd_listen_fds(3)).
  // Appends one error to `problems` for each that cannot be had.
  void open(const std::vector<SocketAddress>& addresses, std::vector<Error>* problems);

  const std::vector<Fd>& sockets() const noexcept { return sockets_; }

 private:
  void take_activated(std::vector<Error>* problems);

  std::vector<Fd> sockets_;
  std::vector<std::string> paths_;
};

}  // namespace bedplate
