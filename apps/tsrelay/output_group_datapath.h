// Outputs of a stream that share a socket, since their sockets would have equal settings
// (groups_of() in relay_settings.h).
//
// Packets are sent from their receive buffers, many in a call. The packets that are ready together,
// at most kBlockMax, form a block. Each output in turn gets the whole block, since packets to one
// address cost least together (transport/udp/udp_socket.h joins them). If the socket's queue is
// full the group waits, and the ring drops its oldest packets when it is full. If an output's
// address does not answer ARP, its packets wait in the socket and fill its queue. Such an output
// moves to another socket, the group's `aside`, where only outputs like it delay one another. It
// moves back after kAsideNs without an error.
//
// Invariants, which is_valid() checks: 1. Members before member_ have had the whole block, members
// behind it none of it, and member_ the packets before number_: so next() <= number_ <= block_end_.
// 2. Without a block, all three are the same, and member_ is 0. 3. Each packet of a block is ready.
// 4. A group that is an aside has no aside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/tsrelay/fec_wire_datapath.h"
#include "apps/tsrelay/packet_ring_datapath.h"
#include "apps/tsrelay/relay_counters.h"

namespace bedplate::relay {

struct Output {
  DatagramAddress to;
  bool is_plain = false;  // without the RTP header
  bool adds_rtp = false;  // with the RTP header that the stream has added
  bool has_fec = false;   // columns are sent to its port + 2, rows to its port + 4
  bool is_muted = false;  // nothing is sent to it
  OutputCounters* counters = nullptr;
  uint64_t first_number = 0;  // it gets no packet before this one
  uint64_t failed_ns = 0;     // the time of the last error

  // Called between two polls. Packets that came while it was muted are never sent. `end`: the end
  // of the ring.
  void mute(bool on, uint64_t end) noexcept {
    if (is_muted && !on) first_number = std::max(first_number, end);
    is_muted = on;
  }
};

class OutputGroup final : public RingTap {
 public:
  static constexpr uint64_t kAsideNs = 10'000'000'000;

  // Before the seal: it allocates. `aside`, if not nullptr, is created, and is the aside of no
  // other group. Requires: called once; all arguments outlive this, and outputs do not move.
  void create(PacketRing& ring, DatagramSocket& socket, OutputGroup* aside,
              uint32_t output_count_max);
  // Called before packets come, at most output_count_max times.
  void add(Output& output) noexcept {
    BP_ASSERT(members_.size() < members_.capacity() && output.counters != nullptr);
    members_.insert(members_.end(), &output);
  }

  // Returns the owner for the opening of the group's socket.
  DatagramOwner owner() noexcept;
  DatagramSocket& socket() noexcept { return *socket_; }

  uint32_t pump(uint64_t now_ns) noexcept override;
  void missed(const Packet& packet) noexcept override;

  size_t member_count() const noexcept { return members_.size(); }
  bool is_blocked() const noexcept { return is_blocked_; }
  bool is_valid() const noexcept {
    if (block_end_ > ring_->ready_end() || (main_ != nullptr && aside_ != nullptr)) return false;
    if (next_ == block_end_) return number_ == next_ && member_ == 0;
    return next_ <= number_ && number_ < block_end_ && member_ < members_.size();
  }

 private:
  static constexpr uint32_t kBlockMax = 48;  // packets: the most in one message
  static constexpr uint32_t kBatchMax = 96;  // datagrams in a call

  struct Cursor {
    size_t member = 0;
    uint64_t number = 0;
  };

  bool wants(const Output& output, const Packet& packet, uint64_t number) const noexcept;
  void write(const Output& output, const Packet& packet, OutgoingDatagram* datagram) noexcept;
  uint32_t fill(Cursor* cursor) noexcept;
  bool send(uint32_t count, Cursor end) noexcept;
  void go_to(Cursor cursor) noexcept;
  void begin_block(uint64_t end) noexcept;
  void failed(int error_number, const DatagramAddress& to) noexcept;
  void move(size_t index, OutputGroup& other) noexcept;
  void bring_back(uint64_t now_ns) noexcept;

  PacketRing* ring_ = nullptr;
  DatagramSocket* socket_ = nullptr;
  uint64_t now_ns_ = 0;  // as of the last pump
  OutputGroup* aside_ = nullptr;
  OutputGroup* main_ = nullptr;  // the group whose aside this is
  std::vector<Output*> members_;
  size_t member_ = 0;       // the member that the block is being sent to
  uint64_t number_ = 0;     // the next packet for member_
  uint64_t block_end_ = 0;  // the end of the block
  bool is_blocked_ = false;
  uint64_t look_ns_ = 0;
  OutgoingDatagram datagrams_[kBatchMax];
  Cursor cursors_[kBatchMax];
};

}  // namespace bedplate::relay
