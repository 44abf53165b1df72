// The endpoint to another member of the group.
//
// Everything that goes to one peer goes through one queue at a time, so that order is kept without
// numbers: the peer's FIFO (lazy), a box that the peer gave this pair, its lane (mesh) or its one
// inbound box (exchange). The queue is changed only when the old one is known to be empty of this
// endpoint's messages. Loans and copies travel as slots of that same queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "platform/file.h"
#include "transport/endpoint.h"
#include "transport/shm/eager_region_datapath.h"
#include "transport/shm/fast_box_datapath.h"
#include "transport/shm/futex_bell.h"
#include "transport/shm/inbound_fifo_datapath.h"
#include "transport/shm/mesh_lane_datapath.h"
#include "transport/shm/shm_operations.h"
#include "transport/shm/spin_lock.h"
#include "transport/single_copy.h"

namespace bedplate {

class ShmProvider;

class ShmEndpoint final : public Endpoint {
 public:
  ShmEndpoint(ShmProvider& provider, uint32_t peer) noexcept;

  SendStatus am_send(AmId id, std::span<const std::byte> payload) noexcept override;
  SendStatus am_send_loan(AmId id, std::span<const std::byte> header, std::span<std::byte> block,
                          Completion* returned) noexcept override;
  SendStatus put(std::span<const std::byte> from, const RemoteMemory& to,
                 Completion* done) noexcept override;
  SendStatus get(std::span<std::byte> into, const RemoteMemory& from,
                 Completion* done) noexcept override;
  SendStatus fetch_add(const RemoteMemory& to, uint64_t addend, uint64_t* before,
                       Completion* done) noexcept override;
  SendStatus compare_swap(const RemoteMemory& to, uint64_t expected, uint64_t desired,
                          uint64_t* before, Completion* done) noexcept override;
  SendStatus flush(Completion* done) noexcept override;
  Result<RemoteMemory> expose(std::span<std::byte> memory) override;
  void withdraw(const RemoteMemory& memory) noexcept override;
  bool has_room() noexcept override;
  const EndpointLimits& limits() const noexcept override;
  const char* provider_name() const noexcept override;

  uint32_t peer() const noexcept { return peer_; }
  uint64_t generation() const noexcept { return generation_; }
  // Whether what is sent now goes through a fast box.
  bool has_box() const noexcept { return queue_ == Queue::kBox; }

 private:
  friend class ShmProvider;
  enum class Queue : uint8_t { kFifo, kBox, kLane };

  // Forgets the former peer: from here on it is the one of `generation`.
  void open(uint64_t generation) noexcept;
  // From here on nothing is written for the peer.
  void close() noexcept;

  // Puts one slot into the queue: `bytes` is the message's length, `data` what the slot has of it.
  // Returns false when there is no room.
  bool post(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept;
  bool post_to_box(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept;
  // Tries again in another slot where the receiver has passed over the first: this process was
  // stopped or preempted for too long.
  bool post_to_fifo(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept;
  static constexpr int kPublishAttemptsMax = 4;
  bool post_to_lane(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept;
  bool has_eager_room() noexcept;
  SendStatus send_copy(AmId id, std::span<const std::byte> payload) noexcept;
  // The message that was posted last, as the user of a piece of the eager region.
  EagerRegion::Use last_use() const noexcept;
  bool is_consumed(const EagerRegion::Use& use) noexcept;
  // shm_operations.cc
  SendStatus start(Operation& operation, uint64_t bytes, const RemoteMemory& remote,
                   Completion* done) noexcept;
  static void do_here(const Operation& operation) noexcept;
  SendStatus copy_once(const Operation& operation) noexcept;
  SendStatus ask_target(Operation& operation) noexcept;
  bool post_operation(Operation& operation) noexcept;
  bool advance(Operation& operation, Outcome* outcome) noexcept;
  bool open_memory() noexcept;

  // From now on to be sent through, as soon as order allows.
  void use_box(uint32_t box) noexcept;
  // To be given back, as soon as order allows.
  void return_box() noexcept;
  // Moves to the box that the peer gave, or back to the FIFO, as soon as order allows.
  void settle_queue() noexcept;

  ShmProvider& provider_;
  const uint32_t peer_;
  Queue queue_ = Queue::kFifo;
  bool is_open_ = false;
  bool must_return_box_ = false;  // the peer wants its box back, or gave it in vain
  SpinLock lock_;
  FutexBell bell_;
  std::unique_ptr<FastBoxProducer> box_;  // made with the first box, then kept
  uint32_t box_index_ = kNoBox;           // the box that it has, or is to have
  uint64_t box_uses_ = 0;                 // messages through the boxes that it had before
  InboundFifo fifo_;
  uint64_t known_tail_ = 0;
  uint64_t next_fifo_index_ = 0;  // after the last slot of the FIFO that was ours
  MeshLane lane_;
  uint32_t lane_head_ = 0;
  uint32_t known_lane_tail_ = 0;
  uint32_t inbound_lane_tail_ = 0;
  uint64_t generation_ = 0;

  // The peer's private memory, once it was wanted.
  enum class MemoryState : uint8_t { kUntried, kOpen, kClosed };
  MemoryState memory_state_ = MemoryState::kUntried;
  Fd pidfd_;
  std::unique_ptr<PeerMemory> memory_;

  // What the receiving side knows of the peer.
  static constexpr uint32_t kNoBox = UINT32_MAX;
  uint32_t heard_ = 0;       // messages through the FIFO since a box was last thought of
  bool gave_box_ = false;    // it has one of our boxes
  uint32_t held_loans_ = 0;  // that are not given back yet
  bool is_cut_off_ = false;  // it wrote nonsense
  // Nothing of it is delivered any more: it is cut off, or its end was told.
  bool is_ignored_ = false;
};

}  // namespace bedplate
