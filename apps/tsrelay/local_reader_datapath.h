// A slot for a reader, which gets a stream by messages. A reader is a process, or a service on
// another shard (docs/tsrelay.md). Each packet is lent in its receive buffer, without a copy.
//
//     question "tsrelay.read"   a byte: the message number for the packets; the stream's name
//     packet                    8 bytes: its number since begin(), the lowest byte first; 4 bytes:
//                               the offset of the transport stream in the loan. The loan is the
//                               datagram, without RTP's padding.
//     refusal                   no bytes and no loan: no such stream, no free slot, or the reader
//                               may not read the buffers
//
// A reader that keeps kLoansMax packets gets no more until some come back. It never gets packets
// that the ring drops meanwhile; the numbers show the gap. A reader loses its slot if it has died
// or may not read the buffers.
//
// Invariants, which is_valid() checks: 1. A slot has at most kLoansMax loans, and counts them.
// 2. It waits for loans only while some are out, and for queue space only while it has a reader.
#pragma once

#include <cstdint>

#include "apps/tsrelay/packet_ring_datapath.h"
#include "apps/tsrelay/relay_counters.h"
#include "platform/free_list.h"
#include "transport/messages/messenger.h"

namespace bedplate::relay {

class LocalReader final : public RingTap {
 public:
  static constexpr uint32_t kLoansMax = 32;
  static constexpr uint32_t kHeadBytes = 12;

  // Before the seal. The readers of a stream share `counters`. Requires: called once; all arguments
  // outlive this.
  void create(PacketRing& ring, Messenger* messenger, ReaderCounters& counters) noexcept;

  // Sends the stream to `to` from now on, in messages of number `id`. Packet numbers begin at 0.
  // Requires: is_free() or is_of(to).
  void begin(Endpoint& to, AmId id) noexcept;
  // Sends no more. The slot is free when all loans have come back.
  void end() noexcept;
  bool is_free() const noexcept { return to_ == nullptr && lent_count_ == 0; }
  bool is_of(const Endpoint& to) const noexcept { return to_ == &to; }
  bool is_there() const noexcept { return to_ != nullptr; }
  uint32_t lent_count() const noexcept { return lent_count_; }

  uint32_t pump(uint64_t now_ns) noexcept override;
  void missed(const Packet& packet) noexcept override;
  bool is_valid() const noexcept;

 private:
  struct Lent : Completion {
    LocalReader* self = nullptr;
    uint32_t packet = 0;
    Lent* next_free = nullptr;
  };
  struct Room : RoomCall {
    LocalReader* self = nullptr;
  };

  void returned(Lent& lent, Outcome outcome) noexcept;
  bool lend(const Packet& packet, uint32_t index) noexcept;

  PacketRing* ring_ = nullptr;
  Messenger* messenger_ = nullptr;
  ReaderCounters* counters_ = nullptr;
  Endpoint* to_ = nullptr;
  AmId id_ = 0;
  uint64_t number_ = 0;  // of the next packet of the stream
  uint32_t lent_count_ = 0;
  bool waits_for_loans_ = false;  // the table of loans is full until some come back
  FreeList<&Lent::next_free> free_;
  Room room_;
  Lent lents_[kLoansMax];
};

}  // namespace bedplate::relay
