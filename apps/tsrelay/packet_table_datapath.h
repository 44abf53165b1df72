// The table of a stream's packets: the address, kind and reference count of each.
//
// A packet lies in its receive buffer, or in one of the stream's own buffers (if FEC made or
// recovered it); nothing is copied. When its last reference is gone, its buffer returns to its
// owner.
//
// Invariants, which is_valid() checks: 1. used_count() packets have references. 2. All others are
// free, and no free packet has a reference.
#pragma once

#include <cstdint>
#include <span>

#include "alloc/buffer_pool_datapath.h"
#include "apps/tsrelay/rtp_datapath.h"
#include "platform/assert.h"
#include "transport/sockets/datagram_socket.h"

namespace bedplate::relay {

enum class PacketKind : uint8_t {
  kMedia,
  kColumn,  // of FEC
  kRow,
  kEmpty,   // RTP without payload: sent wherever RTP is sent, so that receivers see no gap
  kNumber,  // not sent; only its number counts
};

struct Packet {
  const std::byte* bytes = nullptr;
  uint32_t byte_count = 0;
  uint32_t payload_bytes = 0;  // the transport stream, after rtp.header_bytes
  RtpPacket rtp;               // without RTP, header_bytes is 0
  PacketKind kind = PacketKind::kMedia;
  // A header of kRtpHeaderBytes lies before `bytes`, for outputs that want it.
  bool has_added_rtp = false;
  DatagramSocket* socket = nullptr;  // the owner of its buffer; nullptr: the stream
  uint32_t references = 0;
  uint32_t next_free = 0;
  uint64_t arrived_ns = 0;   // by the loop's clock
  uint64_t received_ns = 0;  // by the socket (CLOCK_REALTIME); 0: unknown
  uint64_t ordered_ns = 0;   // the time at which it entered the ring
  uint64_t due_ns = 0;       // the time at which it may leave; 0: it need not wait
  DatagramAddress from;
  uint8_t leg = 0;
  bool is_truncated = false;  // the datagram was longer than the buffer

  std::span<const std::byte> datagram() const noexcept { return {bytes, byte_count}; }
  std::span<const std::byte> payload() const noexcept {
    return {bytes + rtp.header_bytes, payload_bytes};
  }
};

class PacketTable {
 public:
  static constexpr uint32_t kNone = ~uint32_t{0};

  // `pool` may be nullptr if the stream has no buffers of its own. Requires: called once; `packets`
  // and `pool` outlive this.
  void create(std::span<Packet> packets, BufferPool* pool) noexcept {
    BP_ASSERT(packets_.empty() && packets.size() < kNone);
    packets_ = packets;
    pool_ = pool;
    for (size_t i = 0; i < packets.size(); ++i) {
      packets[i].next_free = i + 1 < packets.size() ? static_cast<uint32_t>(i + 1) : kNone;
    }
    first_free_ = packets.empty() ? kNone : 0;
  }
  // Returns a free packet with one reference, the caller's, or kNone if none is free.
  uint32_t take() noexcept {
    const uint32_t index = first_free_;
    if (index == kNone) return kNone;
    BP_DCHECK(packets_[index].references == 0);
    first_free_ = packets_[index].next_free;
    packets_[index] = {};
    packets_[index].references = 1;
    ++used_count_;
    return index;
  }
  // Adds a reference. Requires: the packet has one.
  void hold(uint32_t index) noexcept {
    BP_DCHECK(packets_[index].references > 0);
    ++packets_[index].references;
  }
  // Removes a reference. With the last one the packet is free, and its buffer returns.
  void let_go(uint32_t index) noexcept {
    Packet& packet = packets_[index];
    BP_ASSERT(packet.references > 0);
    if (--packet.references > 0) return;
    if (packet.socket != nullptr) {
      packet.socket->release(packet.bytes);
    } else if (packet.bytes != nullptr) {
      BP_ASSERT(pool_ != nullptr);
      pool_->give_back(0, const_cast<std::byte*>(packet.bytes));
    }
    packet.next_free = first_free_;
    first_free_ = index;
    --used_count_;
  }
  Packet& operator[](uint32_t index) noexcept {
    BP_DCHECK(index < packets_.size());
    return packets_[index];
  }
  uint32_t used_count() const noexcept { return used_count_; }
  bool is_valid() const noexcept {
    uint32_t used = 0;
    for (const Packet& packet : packets_) used += packet.references > 0 ? 1 : 0;
    size_t free_count = 0;
    for (uint32_t i = first_free_; i != kNone; i = packets_[i].next_free) {
      if (i >= packets_.size() || packets_[i].references > 0) return false;
      if (++free_count > packets_.size()) return false;
    }
    return used == used_count_ && used + free_count == packets_.size();
  }

 private:
  std::span<Packet> packets_;
  uint32_t first_free_ = kNone;
  uint32_t used_count_ = 0;
  BufferPool* pool_ = nullptr;
};

}  // namespace bedplate::relay
