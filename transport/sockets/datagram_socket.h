// Datagrams of one shard: received and sent in batches, from and into memory of the pool.
//
// The interface does not say what carries them. One implementation is the kernel's UDP
// (transport/udp/udp_socket.h, over both backends of StreamSockets).
//
// Received datagrams lie in the socket's own buffers and are lent to the owner for the time of the
// callback; with `is_kept` for longer, until release(). While all buffers are kept nothing is
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
  // Several of one sender that were joined on the way: each has so many bytes, the last may have
  // fewer. 0: it is one.
  uint32_t segment_bytes = 0;
  DatagramAddress from;
  IpAddress to;              // which of this machine's addresses (or groups) it was sent to
  uint64_t received_ns = 0;  // when it came, since 1970 (CLOCK_REALTIME); 0: unknown
  Ecn ecn = Ecn::kNone;
  bool is_truncated = false;  // it was longer than the buffer: the rest is lost
  // Set by the callback: the buffer, and what it has, stays the owner's until release(bytes).
  bool is_kept = false;
};

struct OutgoingDatagram {
  const std::byte* bytes = nullptr;
  uint32_t byte_count = 0;
  // Cut into several on the way: each gets so many bytes, the last may get fewer. 0: it is one.
  uint32_t segment_bytes = 0;
  DatagramAddress to;  // none: to the peer that the socket is connected to
  IpAddress from;      // one of this machine's addresses; none: the system chooses
  Ecn ecn = Ecn::kNone;
};

enum class DatagramStatus : uint8_t {
  kDone,     // all were taken
  kAgain,    // no room: the rest later; `has_room` is called once when there is some
  kRefused,  // the first that was not taken cannot be sent as it is: `error_number` says why
};

struct DatagramsSent {
  uint32_t sent_count = 0;  // so many from the front were taken wholly
  DatagramStatus status = DatagramStatus::kDone;
  int error_number = 0;  // an errno value with kRefused, such as EMSGSIZE, ENETUNREACH
};

// The callbacks of its owner. All are called on the shard from its poll, never from within a
// function of the socket; each may call those functions, close() too. Any may be nullptr but
// `received`.
struct DatagramOwner {
  void (*received)(void* context, std::span<ReceivedDatagram> datagrams) noexcept = nullptr;
  void (*has_room)(void* context) noexcept = nullptr;
  // An earlier datagram to `to` did not arrive (ECONNREFUSED: there is no such port; EHOSTUNREACH;
  // EMSGSIZE: too long for a link on the way). Nothing else was lost with it. `to` may be none.
  void (*failed)(void* context, int error_number, const DatagramAddress& to) noexcept = nullptr;
  void* context = nullptr;
};

// Read by open() alone, but for `owner`, whose context outlives close().
struct DatagramOptions {
  DatagramAddress local;  // to bind to; 0.0.0.0 or [::]: all addresses of that family, and no other
  DatagramAddress peer;   // none: not connected. Connected: only its datagrams are received
  DatagramOwner owner;
  // How much the system is to hold before it drops, 0: its default. Less than asked for is said in
  // the log, with the cure.
  uint32_t receive_queue_bytes = 0;
  uint32_t send_queue_bytes = 0;
  // Shares its port with other sockets that set this: the datagrams of one sender go to one of
  // them. If they are bound to a multicast group, each gets all that comes over the interface by
  // which it has joined.
  bool shares_port = false;
  // Datagrams of one sender may be joined (segment_bytes). Requires: buffers of 64 KiB.
  bool joins_received = false;
  // Bytes before each received datagram that the owner may write to: a header to send before it.
  // They are part of the buffer. Ports have none.
  uint32_t headroom_bytes = 0;
  uint8_t service_class = 0;  // of what is sent: the six bits of RFC 2474
  // Multicast that is sent: over this interface (nullptr: the routes say), its hops, and whether
  // this machine hears it.
  const char* multicast_interface = nullptr;
  uint8_t multicast_hops = 1;
  bool hears_own_multicast = true;
  bool sends_broadcast = false;  // else each datagram to a broadcast address is refused (EACCES)
};

// The memory that it was made with (ServicePlan::datagram_socket, which refuses anything else).
struct DatagramShape {
  uint32_t buffer_count = 64;    // received at once and kept, together; 1 to 1048576
  uint32_t buffer_bytes = 2048;  // a longer datagram is truncated; a multiple of 64 up to 65536
  uint64_t bytes() const noexcept { return uint64_t{buffer_count} * buffer_bytes; }
};

// Threads: the shard's, but for open() and join(), which may come earlier from another.
// Ownership: the shard's, as long as its loop; datagrams that are lent and kept lie in its buffers.
class DatagramSocket {
 public:
  virtual ~DatagramSocket() = default;

  // Opens and binds; it does not block. Requires: it is not open.
  // Errors: kConfiguration for options that contradict one another; else the system's (kSystem),
  // with what to do. It is not open then.
  virtual Result<void> open(const DatagramOptions& options) = 0;
  // Receives from now on, also what has come since open(). Requires: it is open, and was not
  // started.
  // Returns 0 or an errno value (StreamSockets::start_watching).
  virtual int start() noexcept = 0;
  // No callback comes any more. Datagrams that were kept stay valid until the next open(). Nothing
  // happens if it is not open.
  virtual void close() noexcept = 0;
  virtual bool is_open() const noexcept = 0;
  // The address that it is bound to, with the port that the system chose. None if it is not open.
  virtual DatagramAddress local() const noexcept = 0;

  // Has it receive what is sent to `group`; with `source`, only what that address sends. Over
  // `interface` (its name), or the one that the routes say (nullptr). leave() ends just what a
  // join() with the same three began. Requires: it is open. Errors (kSystem): the system's, with
  // what to do. May allocate.
  virtual Result<void> join(const IpAddress& group, const IpAddress& source = {},
                            const char* interface = nullptr) = 0;
  virtual Result<void> leave(const IpAddress& group, const IpAddress& source = {},
                             const char* interface = nullptr) = 0;

  // Both give an interface by its number, for those that have found out that it is another one than
  // it was: an interface that went and came back has a new number, and the system keeps nothing for
  // it. A network that is not the kernel's keeps its interfaces, and does nothing here. Threads:
  // any, one at a time, while nobody opens or closes it: the kernel may keep it waiting.
  //
  // Leaves `group` where it was joined over the interface `left_index` (0: nowhere), and joins it
  // over `index` (0: nowhere), so that the network hears of it anew, also where the two are the
  // same. Requires: it is open, and the group was joined with `source` alone. Returns 0 or an errno
  // value: it is joined nowhere then.
  virtual int rejoin(const IpAddress& /*group*/, const IpAddress& /*source*/,
                     uint32_t /*left_index*/, uint32_t /*index*/) noexcept {
    return 0;
  }
  // Multicast is sent over it from now on. Requires: it is open. Returns 0 or an errno value.
  virtual int send_multicast_over(uint32_t /*index*/) noexcept { return 0; }

  // Sends in their order. The memory of those that were taken is the caller's again. If a cut
  // datagram was taken in part, that part is taken off its front, so that the rest can be given
  // again.
  // Requires: it is open; start() was called.
  virtual DatagramsSent send_batch(std::span<OutgoingDatagram> datagrams) noexcept = 0;
  // Gives a kept buffer back: any address within it. Requires: it is kept.
  virtual void release(const std::byte* bytes) noexcept = 0;
};

}  // namespace bedplate
