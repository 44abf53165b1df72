// The path of messages to one peer: the queue that leads there, and the peer's bell.
//
// All messages to one peer go through one queue at a time, which keeps their order without numbers:
// the peer's FIFO (lazy), a box that the peer gave to this pair, its lane (mesh) or its one inbound
// box (exchange). The queue changes only when the old one is known to hold no message of this path.
// Loans and copies travel as slots of that same queue.
//
// Invariants: 1. A box that the path has is its queue, or will be (must_settle_). 2. A path that
// must return its box must settle. 3. A path that is not open has no box to return. (is_valid)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/assert.h"
#include "transport/messages/endpoint.h"
#include "transport/shm/endpoint/group_view.h"
#include "transport/shm/queue/box_sender_datapath.h"
#include "transport/shm/queue/eager_stock.h"
#include "transport/shm/queue/fifo_sender_datapath.h"
#include "transport/shm/queue/futex_bell.h"
#include "transport/shm/queue/lane_sender_datapath.h"

namespace bedplate {

// The requests of control slots. A slot's body is a box's number, or the offset of an operation's
// record in the sender's eager region.
enum class ShmControl : uint32_t {
  kBoxGranted,  // a box for your messages to me
  kBoxWanted,   // please give it back
  kBoxClosed,   // here it is: empty, and I send nothing more through it
  kOperation,   // shm_operations.h
};

// The parts that all paths of a member share.
struct OutgoingParts {
  GroupView group;
  EagerStock stock;
  uint32_t am_bytes_max = 0;
  uint32_t returning_count = 0;  // paths that must return their boxes
};

static_assert(OutgoingQueue<FifoSender> && OutgoingQueue<BoxSender> && OutgoingQueue<LaneSender>);

// Threads: the shard's.
class OutgoingPath {
 private:
  // The only function that asks for the kind of queue.
  template <typename Body>
  [[gnu::always_inline]] decltype(auto) with_queue(QueueKind kind, Body&& body) noexcept {
    if (BP_LIKELY(kind == QueueKind::kBox)) return body(box_);
    if (kind == QueueKind::kFifo) return body(fifo_);
    return body(lane_);
  }

 public:
  static constexpr uint32_t kNoBox = UINT32_MAX;

  OutgoingPath(OutgoingParts& parts, uint32_t peer) noexcept;
  OutgoingPath(const OutgoingPath&) = delete;
  OutgoingPath& operator=(const OutgoingPath&) = delete;

  uint32_t peer() const noexcept { return peer_; }
  void ring() noexcept { bell_.ring(); }

  // Forgets the former peer, and frees its chunks of the eager region. From here on the peer is the
  // member's process of `generation`, and messages to it are possible if `is_open`.
  void open(uint64_t generation, bool is_open) noexcept;
  // From here on this path writes nothing for the peer, and its posted messages count as consumed.
  void close() noexcept;
  bool is_open() const noexcept { return is_open_; }
  uint64_t generation() const noexcept { return generation_; }

  // send(), post(), has_room() and take_eager() require is_open(). ring() above does not.

  // Sends a copy of `payload`. Returns kDone, kAgain (no space now) or kTooLong (am_bytes_max).
  SendStatus send(AmId id, std::span<const std::byte> payload) noexcept {
    if (payload.size() > kInlineBytesMax) return send_long(id, payload);
    const auto bytes = static_cast<uint32_t>(payload.size());
    return post({SlotKind::kInline, id, bytes, parts_.group.self()}, payload.data(), bytes)
               ? SendStatus::kDone
               : SendStatus::kAgain;
  }
  // Puts one slot into the queue: `header` has the message's size, `data` the slot's part of the
  // message. Returns false if there is no space.
  bool post(const SlotHeader& header, const std::byte* data, size_t data_bytes) noexcept {
    BP_DCHECK(is_open_);
    if (BP_UNLIKELY(must_settle_)) settle();
    const bool is_posted = with_queue(
        queue_, [&](auto& queue) noexcept { return queue.post(header, data, data_bytes); });
    if (is_posted) bell_.ring();
    return is_posted;
  }
  bool post_control(ShmControl what, const void* body, uint32_t bytes) noexcept {
    return post({SlotKind::kControl, static_cast<uint32_t>(what), bytes, parts_.group.self()},
                static_cast<const std::byte*>(body), bytes);
  }
  bool has_room() noexcept;
  EagerRegion::Piece take_eager(uint64_t bytes) noexcept { return parts_.stock.take(bytes, *this); }

  // ---- The box that the peer gives ----

  uint32_t box_index() const noexcept { return box_index_; }
  // Whether messages go through a fast box now.
  bool has_box() const noexcept { return queue_ == QueueKind::kBox; }
  // Sends through `box`, as soon as order allows. Requires: is_open(), and the path has no box.
  void use_box(uint32_t box) noexcept;
  // Gives the box back, as soon as order allows. Does nothing if called before for this box.
  // Requires: is_open(), and the path has a box.
  void return_box() noexcept;
  bool must_return_box() const noexcept { return must_return_box_; }
  // Moves to the box that the peer gave, or back to the FIFO, if order allows it by now. Requires:
  // a move is pending.
  void settle() noexcept;

  // ---- The eager region ----

  // Whether the peer needs the chunk of `use` no more: it has finished the message, or this path is
  // closed; for an answer, whether the peer can answer no more.
  bool is_consumed(const EagerRegion::Use& use) noexcept;

  bool is_valid() const noexcept;

 private:
  SendStatus send_long(AmId id, std::span<const std::byte> payload) noexcept;
  SendStatus send_eager(const SlotHeader& header, std::span<const std::byte> payload) noexcept;
  // The last posted message, as the user of a chunk of the eager region.
  EagerRegion::Use last_use() noexcept;

  OutgoingParts& parts_;
  const uint32_t peer_;
  QueueKind queue_ = QueueKind::kFifo;
  bool is_open_ = false;
  bool must_settle_ = false;
  bool must_return_box_ = false;  // the peer wants its box back
  FutexBell bell_;
  uint32_t box_index_ = kNoBox;  // the box that the path has, or will have
  BoxSender box_;
  FifoSender fifo_;
  LaneSender lane_;
  uint64_t generation_ = 0;
};

}  // namespace bedplate
