// Processes, and services on other shards, that get a stream by messages (docs/tsrelay.md): each
// packet is lent as it lies in the buffer that it was received in.
//
//     question "tsrelay.read"   a byte: the number that packets come with; the stream's name
//     packet                    8 bytes: its number in the stream, the lowest byte first; 4 bytes:
//                               where the transport stream begins in what is lent. That is the
//                               datagram.
//     refusal                   nothing: there is no such stream, or no place. With it no loan.
//
// A reader that keeps kLoansMax packets gets no more until some come back; what the ring drops
// meanwhile it never gets, and the numbers say so. One that has died, or may not read the buffers,
// loses its place.
//
// Invariants, which is_valid() looks at: 1. A place has at most kLoansMax loans, and says how many.
// 2. It waits for loans only while some are out, and for room only while somebody has it.
// 3. Numbers of packets count from where it was begun.
#pragma once

#include <cstdint>

#include "apps/tsrelay/packet_ring_datapath.h"
#include "apps/tsrelay/relay_counters.h"
#include "platform/free_list.h"
#include "transport/messenger.h"

namespace bedplate::relay {

class LocalReader final : public RingTap {
 public:
  static constexpr uint32_t kLoansMax = 32;
  static constexpr uint32_t kHeadBytes = 12;

  // Before the seal. Requires: called once; what is given outlives this.
  void create(PacketRing& ring, Messenger* messenger, ReaderCounters& counters) noexcept;

  // Has `to` get the stream from now on. Requires: it is free, or of `to`.
  void begin(Endpoint& to, AmId id) noexcept;
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
  bool waits_for_loans_ = false;  // there is no place for more before some come back
  FreeList<&Lent::next_free> free_;
  Room room_;
  Lent lents_[kLoansMax];
};

}  // namespace bedplate::relay
