// The listening sockets of a service, for one shard or several (places). They are opened before
// anything is taken, so an address in use is one line of boot's report of problems. They are closed
// when boot fails or the appliance ends. This class does not accept connections; the service does.
// Threads: the main thread's.
//
// Invariants: 1. Each socket is open, and no two have one descriptor. 2. Each path has a socket.
// (is_valid, after open and before the sockets are closed) 3. They are opened once. (open)
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "apps/services/service_plan.h"
#include "platform/assert.h"
#include "platform/file.h"
#include "platform/result.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

class Listeners {
 public:
  // `key`: the configuration key of the addresses: "listen in [SERVICE]". With `local_only`, passed
  // sockets must be local, too; ServicePlan::listen has checked the addresses. If `access` is
  // restricted, the files of Unix sockets get its user and group.
  explicit Listeners(std::string key, LocalOnly local_only = {}, SocketAccess access = {},
                     size_t place_count = 1)
      : key_(std::move(key)),
        local_only_(std::move(local_only)),
        access_(std::move(access)),
        place_count_(place_count) {}
  Listeners(Listeners&&) noexcept = default;
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;
  // Closes the sockets and removes the files of Unix sockets.
  ~Listeners();

  // Opens every address; `activation:` takes over the sockets that LISTEN_FDS passes, at most 8
  // (sd_listen_fds(3)). Appends one error to `problems` for each address that cannot be opened.
  // Requires: called once; `activation:` comes once at most.
  void open(const std::vector<SocketAddress>& addresses, std::vector<Error>* problems);

  // Those of a place, in the order of the addresses: all of the first place, those of TCP addresses
  // of the others. Requires: open() was called.
  const std::vector<Fd>& sockets(size_t place = 0) const noexcept {
    BP_ASSERT(place < sockets_.size());
    return sockets_[place];
  }
  bool is_valid() const noexcept;

 private:
  void take_activated(std::vector<Error>* problems);
  Result<std::vector<Fd>> open_at(const SocketAddress& address) const;
  Result<void> give_file(const std::string& path) const;
  Error activation_error(const char* answer) const;

  std::string key_;
  LocalOnly local_only_;
  SocketAccess access_;
  size_t place_count_;
  std::vector<std::vector<Fd>> sockets_;  // of each place
  std::vector<std::string> paths_;
};

// The addresses at which a service listens: `in_image` in the first process of an image, unless it
// is empty. Lifetime: that of the lists.
const std::vector<SocketAddress>& listened_addresses(const Configuration& configuration,
                                                     const std::vector<SocketAddress>& addresses,
                                                     const std::vector<SocketAddress>& in_image);
// The address whose socket has this index in Listeners::sockets(), of `socket_count`: each address
// has one, `activation:` has the rest.
const SocketAddress& address_of_socket(const std::vector<SocketAddress>& addresses, size_t socket,
                                       size_t socket_count);

// Opens the listening addresses of `services`. Returns, for each service, a Listeners object for
// each of its keys, in order. Appends each problem to `problems`. Without `with_activation` it
// leaves out `activation:`: `check` is passed no sockets.
std::vector<std::vector<Listeners>> open_listeners(const std::vector<ServiceNeeds>& services,
                                                   bool with_activation,
                                                   std::vector<Error>* problems);

}  // namespace bedplate
