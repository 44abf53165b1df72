// Clients that a server refuses with words in their own protocol.
//
// The kernel resets a connection that is closed with bytes unread, and the reset discards the
// words. So the server sends nothing more (SHUT_WR), and drops what comes until the client closes,
// or for kLingerNs. The words must fit into the socket's buffer. They go without a layer.
//
// Invariants, checked by is_valid(): 1. A client has a descriptor exactly while its place is taken.
// 2. Only the time of such a client is limited.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "platform/units.h"
#include "transport/loop/time_limit.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

// Threads: before the loop runs, the one that sets it up; then the loop's. Nothing is allocated
// after create().
class RefusedClients {
 public:
  // At once; of a further one the connection is closed as soon as it has its words.
  static constexpr uint32_t kCountMax = 8;
  static constexpr uint64_t kLingerNs = kNsPerSecond;

  RefusedClients() noexcept = default;
  RefusedClients(const RefusedClients&) = delete;
  RefusedClients& operator=(const RefusedClients&) = delete;

  // Before the seal: it allocates the timer's slot. Called once. `sockets` outlives this, which
  // lives as long as the loop runs.
  void create(StreamSockets& sockets) noexcept;
  // Sends `words` to the client of the connected socket `fd`, and closes `fd`, now or later. Empty:
  // closes it now. Requires: create() was called, or `words` is empty.
  void refuse(int fd, std::string_view words) noexcept;
  // Closes all. After the loop's run.
  void end() noexcept;

  bool is_valid() const noexcept;

 private:
  struct Client : Limited {
    StreamSocket socket;
    iovec dropped = {};
    RefusedClients* all = nullptr;
  };

  void receive(Client& client) noexcept;
  void received(Client& client, int64_t result) noexcept;
  void close(Client& client) noexcept;

  StreamSockets* sockets_ = nullptr;
  std::array<Client, kCountMax> clients_;
  TimeLimit lingering_;
  char dropped_[4 * kKiB];  // shared by all; nobody reads it
};

}  // namespace bedplate
