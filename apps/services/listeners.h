// The listening sockets of a service: opened before anything is taken, so that an address in use is
// one line of preflight's report; closed when boot fails. Nobody accepts here: the service's shard
// does. Threads: the main thread's.
//
// Invariants: 1. Each socket is open, and its descriptor no other's. 2. There is no path without a
// socket. (is_valid, after open and before they are given up) 3. They are opened once. (open)
#pragma once

#include <string>
#include <vector>

#include "apps/services/service_plan.h"
#include "platform/file.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

class Listeners {
 public:
  // `key`: the key of the configuration that says the addresses: "listen in [SERVICE]". With
  // `local_only`, sockets that are passed must be local, too; ServicePlan::listen has looked at the
  // addresses.
  // Files of sockets on Unix paths are given to those of `access`.
  explicit Listeners(std::string key, LocalOnly local_only = {}, SocketAccess access = {})
      : key_(std::move(key)), local_only_(std::move(local_only)), access_(std::move(access)) {}
  Listeners(Listeners&&) noexcept = default;
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;
  // Closes the sockets and removes the files of those on Unix paths.
  ~Listeners();

  // Opens every address; `activation:` takes over what LISTEN_FDS passes (sd_listen_fds(3)).
  // Appends one error to `problems` for each that cannot be had.
  void open(const std::vector<SocketAddress>& addresses, std::vector<Error>* problems);

  const std::vector<Fd>& sockets() const noexcept { return sockets_; }
  bool is_valid() const noexcept;

 private:
  void take_activated(std::vector<Error>* problems);

  Result<void> give_file(const std::string& path) const;
  Error activation_error(const char* answer) const;

  std::string key_;
  LocalOnly local_only_;
  SocketAccess access_;
  std::vector<Fd> sockets_;
  std::vector<std::string> paths_;
};

// Opens the addresses that each of `services` listens at: Listeners for each key, in their order.
// Without `with_activation` (for a process that may have been passed no sockets), `activation:` is
// left out.
std::vector<std::vector<Listeners>> open_listeners(const std::vector<ServiceNeeds>& services,
                                                   bool with_activation,
                                                   std::vector<Error>* problems);

}  // namespace bedplate
