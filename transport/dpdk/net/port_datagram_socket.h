// A datagram socket over a queue of a port (transport/sockets/datagram_socket.h), through the
// packet layer.
//
// Differences from the kernel's sockets:
// - Received datagrams are in the port's buffers; the socket has no buffers of its own. The shape
//   says how many datagrams it may hold. While all are kept, new datagrams are dropped and counted
//   at once.
// - Bytes in a buffer of any port are sent by reference, if this port sends several segments. They
//   must not change until the device has sent them, but may be released at once. All other bytes
//   are copied.
// - Nothing is fragmented: a datagram that exceeds the path MTU is refused (EMSGSIZE).
// - A datagram to an address of its own port stays in this process: a socket of this shard gets it,
//   or else a socket of another shard of the port.
// - joins_received and the queue lengths have no effect: nothing is coalesced, and the queue is the
//   port's. headroom_bytes must be 0. `interface` is the port's name, or none. The socket receives
//   broadcasts, but cannot send any (EACCES), even with sends_broadcast.
#pragma once

#include <memory>
#include <span>

#include "transport/dpdk/net/packet_datapath.h"
#include "transport/dpdk/net/socket_parts.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate {

// Invariants, checked by is_valid(): 1. Pending, lent and kept datagrams together are no more than
// the shape allows. 2. It has pending frames and memberships only while it is open.
class PortDatagramSocket final : public DatagramSocket {
 public:
  static constexpr uint32_t kBatchMax = FrameQueue::kBurstMax;  // the most for one received()

  // Before the seal: it allocates. Requires: UdpSocket::check_shape finds no mistake. `parts`
  // belong to a packet layer, which outlives it (NetStack::socket_parts).
  PortDatagramSocket(const SocketParts& parts, const DatagramShape& shape);
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

  bool is_valid() const noexcept;
  // is_pending(): deliver() has datagrams for the owner. wants_room(): it waits for tell_room().
  bool is_pending() const noexcept { return is_started_ && pending_count_ > 0; }
  bool wants_room() const noexcept { return wants_room_; }

  // ---- For its stack ----------------------------------------------------------------------------

  // Its entry in the stack's socket table.
  struct Link {
    uint32_t slot = 0;
    PortDatagramSocket* next = nullptr;
  };
  Link& link() noexcept { return link_; }
  const Link& link() const noexcept { return link_; }
  void set_local_port(uint16_t port) noexcept { local_.port = port; }
  // Whether the two sockets would be indistinguishable at `port`.
  bool collides_with(const PortDatagramSocket& other, uint16_t port) const noexcept;
  // How well it matches a datagram to an address of the port; 0: no match.
  uint32_t score(const DatagramAddress& to, const DatagramAddress& from) const noexcept;
  // Whether it takes a datagram to a group, or a broadcast.
  bool takes_from_many(const DatagramAddress& to, const DatagramAddress& from) const noexcept;
  bool has_joined(const IpAddress& group) const noexcept;
  // Takes a frame with a datagram, for deliver(). Returns kNone, or the cause why it refuses the
  // frame, which stays the caller's then.
  PacketDrop push(rte_mbuf* frame, const ParsedPacket& packet, uint64_t wall_ns) noexcept;
  // These call the owner, which may close the socket. tell_room() returns 1 if the socket was
  // waiting for room, otherwise 0.
  void deliver() noexcept;
  void tell_failure(int error_number, const DatagramAddress& to) noexcept;
  uint32_t tell_room() noexcept;

 private:
  // Datagrams for the owner, and the mbufs that hold them.
  struct Batch {
    ReceivedDatagram received[kBatchMax];
    rte_mbuf* frames[kBatchMax];
    rte_mbuf* segments[kBatchMax];
  };
  // The progress of a send.
  struct Cursor {
    uint32_t index = 0;         // of the datagram
    uint32_t offset_bytes = 0;  // within the datagram
  };
  // Frames that are not sent yet, and the cursor after each.
  struct Outgoing {
    rte_mbuf* frames[kBatchMax];
    Cursor after[kBatchMax];
    uint32_t bytes[kBatchMax];
    bool is_looped[kBatchMax];
    uint32_t count = 0;
    Cursor done;
  };
  // The route of the last datagram, reused while the address stays the same.
  struct LastRoute {
    DatagramRoute route;
    DatagramAddress to;
    IpAddress from;
    int error_number = 0;
    bool is_there = false;
  };

  Result<void> change_membership(bool is_join, const IpAddress& group, const IpAddress& source,
                                 const char* interface);
  static const char* problem_of(const DatagramOptions& options) noexcept;
  bool is_from_peer(const DatagramAddress& from) const noexcept;
  void keep(rte_mbuf* frame, rte_mbuf* segment) noexcept;
  void give_back_kept() noexcept;

  int find_route(const OutgoingDatagram& datagram, LastRoute& last) noexcept;
  rte_mbuf* make_frame(const OutgoingDatagram& datagram, const LastRoute& last,
                       uint32_t offset_bytes, uint32_t bytes) noexcept;
  void note_sent(uint32_t bytes) noexcept;
  bool flush(Outgoing& outgoing) noexcept;

  SocketParts parts_;
  DatagramShape shape_;
  std::unique_ptr<Batch> batch_;
  std::unique_ptr<rte_mbuf*[]> kept_;  // one reference to each
  uint32_t kept_count_ = 0;
  uint32_t pending_count_ = 0;  // in batch_
  uint32_t lent_count_ = 0;     // of batch_, while received() runs
  Link link_;
  DatagramAddress local_;
  DatagramAddress peer_;
  DatagramOwner owner_;
  Memberships::Holder memberships_ = Memberships::kNone;
  uint32_t generation_ = 0;  // counts open() and close(): a callback may do both
  uint8_t service_class_ = 0;
  uint8_t multicast_hops_ = 1;
  bool hears_own_multicast_ = true;
  bool shares_port_ = false;
  bool is_open_ = false;
  bool is_started_ = false;
  bool wants_room_ = false;
};

}  // namespace bedplate
