// A stream of the relay on its shard: it judges the packets of one or two legs, puts them in order
// and hands them to the outputs.
//
//     a datagram comes:        received() keeps its buffer and adds it to arrivals_; no more
//     the loop polls: work()
//       for each arrival:      an FEC packet: FecReceiver::add_fec, which may recover a lost packet
//         judge()              look_at() checks the format; a malformed one is dropped and counted
//                              admit() checks the sender; another sender's packet is foreign, or
//                              waits
//         take()               counts it; a packet without RTP goes straight to hand_on()
//         insert()             LegMerge::insert holds it until the packets before it have come
//       LegMerge::expire       gives up missing packets whose time is over
//         deliver()            the next packet in order, from insert or expire
//         hand_on()            TsInspector::inspect looks at it; Pacer::due_ns says when it leaves;
//                              add_rtp(), if it has no RTP header and the outputs need one
//         pass_on()            PacketRing::push;
//                              FecSender::add, which pushes FEC packets by send_fec()
//       PacketRing::pump       sends due packets to the outputs; the last output frees the buffer
//       tell()                 copies the counts of all parts into the counters
//
// If a packet of the leg's sender is dropped for its content, its RTP number still counts as
// received: no packet waits for that number, and it is not lost. RTP without payload goes on to
// outputs that get RTP.
//
// A packet stays in the buffer that it was received in until the last output has taken it;
// docs/tsrelay.md has the picture. The sockets' callbacks only record arrivals and keep their
// buffers. work() then processes all arrivals together. Because the buffers are kept, any kind of
// socket may send them by reference.
//
// Threads: the shard's, unless a function says otherwise.
//
// Invariants. is_valid() checks: 1. There are no more arrivals than packets. 2. Ring, merge, table,
// pacer, inspector and FEC are valid; the table has all arrivals, packets in the merge, packets in
// the ring, and the waiting packet, each in one place. hand_on() checks: 3. Each packet handed on
// has whole packets of the transport stream. work() checks: 4. Time does not go back.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "apps/tsrelay/datagram_content_datapath.h"
#include "apps/tsrelay/fec_receiver_datapath.h"
#include "apps/tsrelay/fec_sender_datapath.h"
#include "apps/tsrelay/leg_merge_datapath.h"
#include "apps/tsrelay/leg_silence_datapath.h"
#include "apps/tsrelay/pacer_datapath.h"
#include "apps/tsrelay/packet_ring_datapath.h"
#include "apps/tsrelay/relay_counters.h"
#include "apps/tsrelay/rtp_adder_datapath.h"
#include "apps/tsrelay/sender_lock_datapath.h"
#include "transport/loop/event_loop.h"

namespace bedplate::relay {

struct LegOptions {
  DatagramSocket* media = nullptr;
  DatagramSocket* column = nullptr;  // of FEC; nullptr: none is received
  DatagramSocket* row = nullptr;
  LegCounters* counters = nullptr;
};

struct StreamOptions {
  StreamFormat format = StreamFormat::kAuto;
  uint64_t window_ns = 0;
  uint32_t window_packets = 1;
  uint64_t silence_ns = 0;     // the silence of a sender after which another one may take its leg
  uint64_t pace_delay_ns = 0;  // 0: packets leave as they come
  // Adds an RTP header to packets without one, in kRtpHeadroomBytes of the legs' buffers.
  bool adds_rtp = false;
  RtpAdder::Beginning rtp_beginning;
  uint32_t fec_columns = 0;  // of the FEC sent; 0: none
  uint32_t fec_rows = 0;
  bool has_fec_rows = false;
  uint32_t packet_count = 0;  // one for each buffer, of the stream and of all its sockets
  uint32_t ring_slots = 1;    // a power of two
  uint32_t tap_count = 0;
  PacketTrace trace;
  BufferPool* pool = nullptr;  // the stream's own buffers; nullptr: there is no FEC
  uint32_t buffer_bytes = 0;   // of each
  StreamCounters* counters = nullptr;
  const EventLoop* loop = nullptr;
  std::vector<LegOptions> legs;  // one or two
};

class RelayStream final : public PollSource,
                          private MergeSink,
                          private FecReceiverSink,
                          private FecSenderSink {
 public:
  // Before the seal: it allocates. Requires: called once; all that the options point to outlives
  // this.
  void create(const StreamOptions& options);

  // The ring. Outputs join it as taps, before packets come.
  PacketRing& ring() noexcept { return ring_; }
  const LegOptions& leg(uint32_t index) const noexcept { return options_.legs[index]; }
  // The owner of each socket of a leg: its callbacks, for the opening of the socket.
  DatagramOwner media_owner(uint32_t leg) noexcept;
  DatagramOwner fec_owner(uint32_t leg, bool is_row) noexcept;

  uint32_t poll(uint32_t) noexcept override { return work(options_.loop->now_ns()); }
  uint64_t sleep_max_ns() const noexcept override;
  // Processes arrivals, due packets and outputs. Returns the number of packets processed.
  uint32_t work(uint64_t now_ns) noexcept;
  // The time at which work() has something to do even without arrivals, or LegMerge::kNever.
  uint64_t deadline_ns() const noexcept { return std::min(merge_.deadline_ns(), ring_.due_ns()); }
  // Checks for missing tables, PIDs and senders. Called periodically, also without packets.
  void look_for_missing(uint64_t now_ns) noexcept;
  // Sets whether a leg's group has an interface. Initially it has. Threads: any.
  void set_has_interface(uint32_t leg, bool has_interface) noexcept;
  // Closes the sockets of its legs, and hands on the packets that it still holds.
  void drain() noexcept;
  // Whether the outputs have taken all its packets. Threads: any.
  bool is_drained() const noexcept { return is_drained_.load(std::memory_order_acquire); }

  bool is_valid() const noexcept;

 private:
  // A stream without a loop belongs to no thread.
  bool is_own_thread() const noexcept {
    return options_.loop == nullptr || options_.loop->is_own_thread();
  }
  // The context of a socket's callbacks.
  struct Inlet {
    RelayStream* self = nullptr;
    DatagramSocket* socket = nullptr;
    uint8_t leg = 0;
    bool is_fec = false;

    DatagramOwner owner() noexcept;
  };
  struct Leg {
    LegOptions options;
    SenderLock lock;
    JitterMeter jitter;
    Inlet media;
    Inlet column;
    Inlet row;
    LegSilence silence;
  };
  struct Arrival {
    uint32_t packet = 0;
    bool is_fec = false;
  };

  void received(const Inlet& inlet, std::span<ReceivedDatagram> datagrams) noexcept;
  void judge(uint32_t index, uint64_t now_ns) noexcept;
  // The verdict of admit() on a packet.
  enum class Admission : uint8_t {
    kYes,
    kForeign,
    kWaits,     // it may be the first of its sender after a restart
    kBelieved,  // admitted, together with the packet that has waited
  };

  DatagramContent look_at(Packet& packet) const noexcept;
  Admission admit(const Packet& packet, Leg& leg, uint64_t now_ns) noexcept;
  bool is_any_alive(const Leg* but, uint64_t now_ns) const noexcept;
  void begin_anew() noexcept;
  void learn_anew() noexcept;
  void take(uint32_t index, uint64_t now_ns) noexcept;
  void keep_number(uint32_t index, uint64_t now_ns) noexcept;
  void insert(uint32_t index, uint64_t now_ns) noexcept;
  void drop_waiting() noexcept;
  void hand_on(uint32_t index) noexcept;
  void pass_on(uint32_t index, const RtpPacket& rtp) noexcept;
  RtpPacket add_rtp(Packet& packet) noexcept;
  void tell() noexcept;

  // MergeSink
  void deliver(uint32_t item, uint32_t missing_count) noexcept override;
  void drop(uint32_t item, MergeDrop cause) noexcept override;
  void restarted() noexcept override;
  // FecReceiverSink, FecSenderSink
  std::span<const std::byte> bytes_of(uint32_t item) noexcept override;
  void hold(uint32_t item) noexcept override { table_.hold(item); }
  void let_go(uint32_t item) noexcept override { table_.let_go(item); }
  std::byte* take_buffer() noexcept override { return options_.pool->try_take(0); }
  void give_buffer(std::byte* buffer) noexcept override { options_.pool->give_back(0, buffer); }
  uint32_t recovered(std::byte* buffer, uint32_t bytes) noexcept override;
  void send_fec(std::byte* buffer, uint32_t bytes, bool is_row) noexcept override;

  StreamOptions options_;
  std::unique_ptr<Packet[]> packets_;
  std::unique_ptr<uint32_t[]> indices_;
  PacketTable table_;
  PacketRing ring_;
  LegMerge merge_;
  std::unique_ptr<LegMerge::Slot[]> slots_;
  std::unique_ptr<TsInspector> inspector_;
  std::unique_ptr<FecReceiver> fec_receiver_;  // nullptr: none is received
  FecSender fec_sender_;
  Pacer pacer_;
  RtpAdder rtp_adder_;
  std::vector<Leg> legs_;
  std::unique_ptr<Arrival[]> arrivals_;
  uint32_t arrival_count_ = 0;
  uint64_t now_ns_ = 0;  // the time of the current poll
  uint64_t last_due_ns_ = 0;
  Successor successor_;
  uint32_t waiting_ = PacketTable::kNone;  // the packet that waits for successor_'s verdict
  uint32_t ssrc_ = 0;                      // the SSRC of the stream's sender
  bool has_sender_ = false;
  bool is_draining_ = false;
  std::atomic<bool> is_drained_{false};
  std::atomic<bool> lacks_interface_[LegMerge::kLegsMax] = {};
};

}  // namespace bedplate::relay
