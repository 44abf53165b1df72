// Datagrams through the kernel's UDP: recvmmsg and sendmmsg when the descriptor is ready.
// StreamSockets watches the descriptor, with either backend.
//
// Everything that the kernel tells beside the bytes (addresses, ECN, time, drops, joined segments)
// travels in control messages. Late errors (ICMP) are read from the socket's own error queue, so a
// send never fails for an error of an earlier one.
//
// In a send_batch(), consecutive datagrams of one length to one address go to the kernel as one
// message that it cuts (UDP_SEGMENT, udp(7)): the cost of a datagram is the path through the
// kernel's layers, and the message takes that path once. If the kernel refuses to cut, as it may
// for a device without checksum offload (EIO), each datagram goes by itself until the socket is
// opened again; the log says so, and `cutting_refusals` counts it. If datagrams are only too long
// for the link's MTU (EMSGSIZE), only datagrams of their length or more go by themselves.
#pragma once

#include <memory>

#include <netinet/in.h>
#include <sys/socket.h>

#include "platform/file.h"
#include "transport/sockets/datagram_socket.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {

class UdpSocket final : public DatagramSocket {
 public:
  // The most messages in one system call.
  static constexpr uint32_t kBatchMax = 32;
  // The most datagrams, or parts of datagrams, in the messages of one system call.
  static constexpr uint32_t kPieceMax = 256;
  // The most bytes of received datagrams that the kernel joins; also the largest buffer.
  static constexpr uint32_t kJoinedBytesMax = 64 * 1024;

  // `memory`: shape.bytes() or more, of the pool. `memory` and `sockets` outlive this; `sockets`
  // have a watch for it. The destructor uses neither, so a socket whose shard has ended may be
  // destroyed without close(). Before the seal: it allocates. Requires: the shape is valid
  // (check_shape).
  UdpSocket(StreamSockets& sockets, std::span<std::byte> memory, const DatagramShape& shape);
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  // Returns nullptr, or the fault of the shape.
  static const char* check_shape(const DatagramShape& shape) noexcept;

  Result<void> open(const DatagramOptions& options) override;
  // Opens with a descriptor that open_udp() made with these options and this shape: it cannot fail.
  // Drops datagrams that have arrived by now, since nobody asked for them. Requires: the socket is
  // not open; options.owner has `received`. Threads: as open().
  void adopt(Fd fd, const DatagramOptions& options);
  int start() noexcept override;
  void close() noexcept override;
  bool is_open() const noexcept override { return fd_.is_open(); }
  DatagramAddress local() const noexcept override;
  Result<void> join(const IpAddress& group, const IpAddress& source,
                    const char* interface) override;
  Result<void> leave(const IpAddress& group, const IpAddress& source,
                     const char* interface) override;
  int rejoin(const IpAddress& group, const IpAddress& source, uint32_t left_index,
             uint32_t index) noexcept override;
  int send_multicast_over(uint32_t index) noexcept override;
  DatagramsSent send_batch(std::span<OutgoingDatagram> datagrams) noexcept override;
  void release(const std::byte* bytes) noexcept override;

  int fd() const noexcept { return fd_.number(); }

  // Invariants, looked at before and after each change: 1. Each buffer is exactly once free, kept,
  // or with the owner in received(). 2. It is started only while it is open, and watched only while
  // it is started. 3. The watch asks for everything that can be served (update_watch): datagrams
  // while a buffer is free or in received(), space while a send waits for some. 4. The timer that
  // reports a refusal to cut is armed only while the socket is started.
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kControlBytes = 192;

  // One message for the kernel, with everything that it points at.
  struct alignas(16) Envelope {
    iovec piece;
    sockaddr_in6 name;  // or a sockaddr_in
    alignas(cmsghdr) std::byte control[kControlBytes];
  };
  // The messages of one system call.
  struct Batch {
    mmsghdr messages[kBatchMax];
    Envelope envelopes[kBatchMax];
    ReceivedDatagram received[kBatchMax];
    uint32_t buffers[kBatchMax];
  };
  // The part of the caller's datagrams that one message carries.
  struct Share {
    uint32_t bytes = 0;
    uint32_t datagram_count = 1;  // whole datagrams, or a part of one
    uint32_t segment_count = 1;   // the kernel cuts it into this many datagrams
  };
  // The progress of a send.
  struct Cursor {
    uint32_t index = 0;         // of the next datagram
    uint32_t offset_bytes = 0;  // these bytes of it are sent
  };

  void say_segmenting_refused() noexcept;

  // udp_socket_datapath.cc
  void ready(uint32_t events) noexcept;
  uint32_t can_serve() const noexcept;
  void update_watch() noexcept;
  void receive_batch() noexcept;
  void read_control(const msghdr& message, ReceivedDatagram& datagram) noexcept;
  void tell_errors() noexcept;
  uint32_t write_batch(std::span<OutgoingDatagram> datagrams, Cursor cursor) noexcept;
  uint32_t piece_bytes(const OutgoingDatagram& datagram, uint32_t left_bytes) const noexcept;
  uint32_t joinable_count(std::span<const OutgoingDatagram> datagrams,
                          uint32_t count_max) const noexcept;
  void write_message(const OutgoingDatagram& datagram, std::span<iovec> pieces,
                     uint32_t segment_bytes, uint32_t slot) noexcept;
  Cursor behind(Cursor cursor, const Share& share,
                std::span<const OutgoingDatagram> datagrams) const noexcept;
  bool note_segmenting_refused(int error_number, const OutgoingDatagram& first) noexcept;
  void forget_segmenting_refused() noexcept;

  StreamSockets& sockets_;
  std::byte* memory_;
  DatagramShape shape_;
  std::unique_ptr<uint32_t[]> free_;  // the free buffers
  uint32_t free_count_ = 0;
  std::unique_ptr<bool[]> is_kept_;
  std::unique_ptr<Batch> in_;
  std::unique_ptr<Batch> out_;
  std::unique_ptr<iovec[]> pieces_;  // of sent messages
  std::unique_ptr<Share[]> shares_;
  Fd fd_;
  DatagramOwner owner_;
  Watch watch_;
  Timer refusal_;                  // logs, from the loop, that the kernel refuses to cut
  uint32_t lent_count_ = 0;        // buffers that the owner has in received()
  int refused_with_ = 0;           // errno value; 0: the kernel has not refused to cut
  uint32_t joined_bytes_max_ = 0;  // longer datagrams exceed the link's MTU, and are not joined
  // Counts open() and close(): a callback may close the socket and open it again.
  uint32_t generation_ = 0;
  uint32_t dropped_count_ = 0;  // the kernel's last count
  uint32_t headroom_bytes_ = 0;
  uint8_t service_class_ = 0;
  bool is_ipv6_ = false;
  bool is_started_ = false;
  bool wants_room_ = false;
};

// Joins (`is_join`) or leaves the group on the descriptor of any datagram socket. Arguments and
// errors: as DatagramSocket::join.
Result<void> change_membership(int fd, bool is_join, const IpAddress& group,
                               const IpAddress& source, const char* interface);

// Conversions to and from the kernel's form. to_kernel returns the address's size in bytes;
// from_kernel returns none for another family.
socklen_t to_kernel(const DatagramAddress& address, sockaddr_in6* kernel) noexcept;
DatagramAddress from_kernel(const sockaddr_in6& kernel) noexcept;

}  // namespace bedplate
