// Recovers lost packets from FEC packets (SMPTE ST 2022-1). If a set lacks exactly one packet, that
// packet is the XOR of the others and the FEC packet. A recovered packet may leave another set with
// exactly one missing, and so on.
//
// The owner numbers the packets. The receiver holds a packet while an FEC packet may still need it:
// for kMatricesHeld matrices and kHeldMore packets, since FEC comes by other sockets, in batches of
// its own. It holds nothing until the first FEC packet has come. It does not keep an FEC packet
// whose set is complete.
//
// Invariants, which is_valid() checks: 1. Each packet held is in the slot of its sequence number,
// and media_count_ counts them. 2. The FEC packets held fit into their array, and each has a set.
// 3. Before the first packet, and before the first FEC packet, nothing is held. 4. oldest_ is not
// beyond newest_. A recovered packet may be beyond newest_.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/tsrelay/fec_wire_datapath.h"
#include "platform/assert.h"

namespace bedplate::relay {

class FecReceiverSink {
 public:
  virtual ~FecReceiverSink() = default;
  // Returns the whole datagram.
  virtual std::span<const std::byte> bytes_of(uint32_t item) noexcept = 0;
  // The receiver releases each packet as often as it holds it.
  virtual void hold(uint32_t item) noexcept = 0;
  virtual void let_go(uint32_t item) noexcept = 0;
  // Returns a buffer of buffer_bytes, or nullptr if none is free.
  virtual std::byte* take_buffer() noexcept = 0;
  virtual void give_buffer(std::byte* buffer) noexcept = 0;
  // A packet was recovered, and the sink takes over the buffer. Returns the packet's number, held
  // once for the receiver, or kNoItem if the sink does not want the packet.
  virtual uint32_t recovered(std::byte* buffer, uint32_t bytes) noexcept = 0;

  static constexpr uint32_t kNoItem = ~uint32_t{0};
};

struct FecReceiverReport {
  uint64_t packets = 0;        // FEC packets received
  uint64_t recovered = 0;      // media packets
  uint64_t malformed = 0;      // not FEC of this kind, or a recovery that yields no packet
  uint64_t unrecoverable = 0;  // sets dropped while they lacked packets, or as no buffer was free
};

class FecReceiver {
 public:
  static constexpr uint32_t kMediaMax = 512;  // slots, a power of two
  static constexpr uint32_t kSumsMax = 128;
  static constexpr uint32_t kMatricesHeld = 3;
  static constexpr uint32_t kHeldMore = 128;
  static_assert(kMediaMax >= kMatricesHeld * kFecMatrixMax + kHeldMore);

  // `buffer_bytes`: the size of the sink's buffers. Requires: called once; buffer_bytes is over
  // kRtpHeaderBytes; the sink outlives this.
  void create(FecReceiverSink& sink, uint32_t buffer_bytes) noexcept {
    BP_ASSERT(sink_ == nullptr && buffer_bytes > kRtpHeaderBytes);
    sink_ = &sink;
    buffer_bytes_ = buffer_bytes;
  }
  // Adds a packet of the stream that has not come before. Ignores it before the first FEC packet.
  void add_media(uint32_t item, uint16_t sequence) noexcept;
  // Adds an FEC packet, and recovers the packets that it can. Holds it while its set is incomplete.
  void add_fec(uint32_t item) noexcept;
  // Releases all packets held: the sequence numbers begin anew.
  void restart() noexcept;

  const FecReceiverReport& report() const noexcept { return report_; }
  uint32_t held_count() const noexcept { return media_count_ + sum_count_; }
  bool is_valid() const noexcept;

 private:
  struct Media {
    bool is_there = false;
    uint16_t sequence = 0;
    uint32_t item = 0;
  };
  struct Sum {
    uint32_t item = 0;
    FecPacket packet;
  };

  Media& media_at(uint16_t sequence) noexcept { return media_[sequence & (kMediaMax - 1)]; }
  bool has(uint16_t sequence) noexcept {
    const Media& media = media_at(sequence);
    return media.is_there && media.sequence == sequence;
  }
  void keep(uint32_t item, uint16_t sequence) noexcept;  // the caller has taken a reference
  void forget_old(uint16_t newest) noexcept;
  uint32_t missing_of(const FecPacket& packet, uint16_t* sequence) noexcept;
  void remove_sum(uint32_t index) noexcept;
  void work() noexcept;
  bool recover(const FecPacket& packet, uint16_t sequence) noexcept;

  FecReceiverSink* sink_ = nullptr;
  uint32_t buffer_bytes_ = 0;
  uint32_t depth_ = 0;  // how far a packet held may be behind newest_; 0: no FEC has come
  bool has_newest_ = false;
  uint16_t newest_ = 0;
  uint16_t oldest_ = 0;  // the oldest number that may still be held
  uint32_t media_count_ = 0;
  uint32_t sum_count_ = 0;
  FecReceiverReport report_;
  Media media_[kMediaMax];
  Sum sums_[kSumsMax];
};

}  // namespace bedplate::relay
