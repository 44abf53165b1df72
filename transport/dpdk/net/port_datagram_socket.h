// A datagram socket over a queue of a port (transport/datagram_socket.h), through the packet layer.
//
// What differs from the kernel's:
// - Received datagrams lie in the port's buffers. A shape says how many may be lent and kept; no
//   memory is the socket's own. While all are kept, what comes is dropped and counted at once.
// - What is sent and lies in a received buffer of any port goes by reference: it is not to be
//   changed until the device has sent it, but may be released at once. All else is copied.
// - What is sent to an address of its own port goes to this shard's sockets, by a copy.
// - joins_received and the queue lengths have no meaning: nothing joins, and the queue is the
//   port's. `interface` is the port's name, or none. A broadcast is received, and not sent (EACCES).
#pragma once

#include <memory>

#include "transport/datagram_socket.h"
#include "transport/dpdk/net/net_stack.h"

namespace bedplate {

class PortDatagramSocket final : public DatagramSocket {
 public:
  static constexpr uint32_t kBatchMax = 64;  // given to received() at once

  // Before the seal: it allocates. Requires: UdpSocket::check_shape finds nothing. `stack` outlives
  // it.
  PortDatagramSocket(NetStack& stack, const DatagramShape& shape);
  ~PortDatagramSocket() override;
  PortDatagramSocket(const PortDatagramSocket&) = delete;
  PortDatagramSocket& operator=(const PortDatagramSocket&) = delete;

  Result<void> open(const DatagramOptions& options) override;
  int start() noexcept override;
  void close() noexcept override;
  bool is_open() const noexcept override { return is_open_; }
  DatagramAddress local() const noexcept override { return local_; }
  Result<void> join(const IpAddress& group, const IpAddress& source,
                    const char* interface) override;
  Result<void> leave(const IpAddress& group, const IpAddress& source,
                     const char* interface) override;
  DatagramsSent send_batch(std::span<OutgoingDatagram> datagrams) noexcept override;
  void release(const std::byte* bytes) noexcept override;

 private:
  NetStack& stack_;
  DatagramAddress local_;
  bool is_open_ = false;
};

}  // namespace bedplate
