// Datagrams of one shard, received and sent in batches, from and into memory of the pool.
//
// The interface does not say what carries the datagrams. One implementation is the kernel's UDP
// (transport/udp/udp_socket.h, over both backends of StreamSockets).
//
// Received datagrams lie in the socket's own buffers. The socket lends them to its owner for the
// time of the callback, or, with `is_kept`, until release(). While all buffers are kept, nothing is
// received: datagrams wait in the layer below, which drops and counts them when it is full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/result.h"
#include "transport/sockets/datagram_address.h"

namespace bedplate {

// The bits of RFC 3168 in the IP header.
enum class Ecn : uint8_t { kNone = 0, kCapable1 = 1, kCapable0 = 2, kCongested = 3 };

struct ReceivedDatagram {
  std::byte* bytes = nullptr;
  uint32_t byte_count = 0;
  // The bytes of each segment, if several datagrams of one sender were joined on the way; the last
  // may have fewer. 0: this is a single datagram.
  uint32_t segment_bytes = 0;
  DatagramAddress from;
  IpAddress to;              // the address (or group) of this machine that it was sent to
  uint64_t received_ns = 0;  // arrival time since 1970 (CLOCK_REALTIME); 0: unknown
  Ecn ecn = Ecn::kNone;
  bool is_truncated = false;  // it was longer than the buffer: the rest is lost
  // Set by the callback: the owner keeps the buffer, with its content, until release(bytes).
  bool is_kept = false;
};

struct OutgoingDatagram {
  const std::byte* bytes = nullptr;
  uint32_t byte_count = 0;
  // The bytes of each segment, if it is to be cut into several; the last may get fewer. 0: one.
  uint32_t segment_bytes = 0;
  DatagramAddress to;  // none: the peer that the socket is connected to
  IpAddress from;      // one of this machine's addresses; none: the system chooses
  Ecn ecn = Ecn::kNone;
};

enum class DatagramStatus : uint8_t {
  kDone,     // all were sent
  kAgain,    // no space: send the rest later; `has_room` is called once when there is space
  kRefused,  // the first datagram not sent cannot be sent as it is: `error_number` says why
};

struct DatagramsSent {
  uint32_t sent_count = 0;  // this many from the front were sent wholly
  DatagramStatus status = DatagramStatus::kDone;
  int error_number = 0;  // an errno value with kRefused, such as EMSGSIZE, ENETUNREACH
};

// The callbacks of the socket's owner. The socket calls them on the shard, from its poll, never
// from within its own functions. Each may call those functions, close() too. All but `received` may
// be nullptr.
struct DatagramOwner {
  void (*received)(void* context, std::span<ReceivedDatagram> datagrams) noexcept = nullptr;
  void (*has_room)(void* context) noexcept = nullptr;
  // An earlier datagram to `to` did not arrive (ECONNREFUSED: there is no such port; EHOSTUNREACH;
  // EMSGSIZE: too long for a link on its path). No other datagram was lost with it. `to` may be
  // none.
  void (*failed)(void* context, int error_number, const DatagramAddress& to) noexcept = nullptr;
  void* context = nullptr;
};

// Only open() reads it. The context of `owner` outlives close().
struct DatagramOptions {
  DatagramAddress local;  // to bind to; 0.0.0.0 or [::]: all addresses of that family only
  DatagramAddress peer;   // none: not connected. Connected: only its datagrams are received
  DatagramOwner owner;
  // The bytes that the system queues; 0: its default. It drops what arrives while the receive queue
  // is full; while the send queue is full, send_batch() returns kAgain. If the system grants less,
  // the log says so, with the cure.
  uint32_t receive_queue_bytes = 0;
  uint32_t send_queue_bytes = 0;
  // Shares its port with other sockets that set this: all datagrams of one sender go to the same
  // socket. Sockets bound to a multicast group each get every datagram that arrives over the
  // interface by which they joined.
  bool shares_port = false;
  // Datagrams of one sender may be joined (segment_bytes). Requires: buffers of 64 KiB, no
  // headroom.
  bool joins_received = false;
  // Bytes before each received datagram that the owner may overwrite, as for a header when it sends
  // the datagram on. They are part of the buffer. DPDK ports have none.
  uint32_t headroom_bytes = 0;
  uint8_t service_class = 0;  // of sent datagrams: the six bits of RFC 2474
  // For sent multicast: the interface (nullptr: the routes choose it), the limit on hops, and
  // whether this machine receives the multicast as well.
  const char* multicast_interface = nullptr;
  uint8_t multicast_hops = 1;
  bool hears_own_multicast = true;
  bool sends_broadcast = false;  // else sending to a broadcast address is refused (EACCES)
};

// The memory of the socket (ServicePlan::datagram_socket, which refuses anything else).
struct DatagramShape {
  uint32_t buffer_count = 64;    // for received and kept datagrams together; 1 to 1048576
  uint32_t buffer_bytes = 2048;  // a longer datagram is truncated; a multiple of 64 up to 65536
  uint64_t bytes() const noexcept { return uint64_t{buffer_count} * buffer_bytes; }
};

// Threads: the shard's, but for open() and join(), which another thread may call earlier.
// Ownership: the shard's, as long as its loop; lent and kept datagrams lie in its buffers.
class DatagramSocket {
 public:
  virtual ~DatagramSocket() = default;

  // Opens and binds the socket; does not block. Requires: it is not open. Errors: kConfiguration
  // for options that contradict one another; else the system's (kSystem), with what to do. After an
  // error it is not open.
  virtual Result<void> open(const DatagramOptions& options) = 0;
  // Starts to receive, beginning with datagrams that arrived since open(). Requires: it is open,
  // and was not started. Returns 0 or an errno value (StreamSockets::start_watching).
  virtual int start() noexcept = 0;
  // Ends all callbacks. Kept datagrams stay valid until the next open(). Does nothing if it is not
  // open.
  virtual void close() noexcept = 0;
  virtual bool is_open() const noexcept = 0;
  // The address of the bound socket, with the port that the system chose. None if it is not open.
  virtual DatagramAddress local() const noexcept = 0;

  // Receives the datagrams sent to `group` from now on; with `source`, only those of that address.
  // Joins over `interface` (its name), or over the one that the routes say (nullptr). leave()
  // undoes the join() with the same three arguments. Requires: it is open. Errors (kSystem): the
  // system's, with what to do. May allocate.
  virtual Result<void> join(const IpAddress& group, const IpAddress& source = {},
                            const char* interface = nullptr) = 0;
  virtual Result<void> leave(const IpAddress& group, const IpAddress& source = {},
                             const char* interface = nullptr) = 0;

  // The next two functions give an interface by its number, for callers that have seen the number
  // change: an interface that is removed and made again has a new number, and the kernel keeps no
  // membership for it. A network other than the kernel's keeps its interfaces, and does nothing
  // here. Threads: any, one at a time, while nobody opens or closes the socket; the kernel may
  // block the caller.
  //
  // Leaves `group` on the interface `left_index`, where it was joined (0: nowhere), and joins it on
  // `index` (0: nowhere). The network so hears of the membership anew, even if both are the same.
  // Requires: it is open, and the group was joined with `source` alone. Returns 0 or an errno
  // value: then it is joined nowhere.
  virtual int rejoin(const IpAddress& /*group*/, const IpAddress& /*source*/,
                     uint32_t /*left_index*/, uint32_t /*index*/) noexcept {
    return 0;
  }
  // Sends multicast over this interface from now on. Requires: it is open. Returns 0 or an errno
  // value.
  virtual int send_multicast_over(uint32_t /*index*/) noexcept { return 0; }

  // Sends the datagrams in order. The memory of those that were sent is the caller's again. If a
  // datagram to be cut was sent in part, that part is taken off its front, so that the caller can
  // give the rest again. Requires: it is open; start() was called.
  virtual DatagramsSent send_batch(std::span<OutgoingDatagram> datagrams) noexcept = 0;
  // Gives a kept buffer back; `bytes` is any address within it. Requires: it is kept.
  virtual void release(const std::byte* bytes) noexcept = 0;
};

}  // namespace bedplate
