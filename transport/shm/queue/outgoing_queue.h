// The interface of the three kinds of queues that lead to a peer. Each has a class for its sending
// end: FifoSender, BoxSender, LaneSender.
//
// They have no base class: the kind of group decides which queue leads to a peer (GroupTraits),
// until a box is given or taken away. Only OutgoingPath::with_queue() asks for the kind.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate {

enum class QueueKind : uint8_t { kFifo, kBox, kLane };

enum class LongPost : uint8_t {
  kPosted,
  kNoRoom,
  kElsewhere,  // the queue cannot carry it: copy it to the eager region, post() its offset
};

struct SlotHeader;
class EagerStock;
class OutgoingPath;
class GroupView;

// The peer that a queue leads to, and the parts that the queue uses; all outlive the queue.
struct OutgoingRoute {
  const GroupView& group;
  EagerStock& stock;   // the sender's own eager region
  OutgoingPath& path;  // the owner of the queue
  uint32_t peer;
};

// Threads: the sender's.
template <typename Queue>
concept OutgoingQueue = requires(Queue queue, const OutgoingRoute& route, const SlotHeader& header,
                                 const std::byte* data, size_t data_bytes,
                                 std::span<const std::byte> payload, uint32_t bytes,
                                 uint64_t index) {
  // Forgets all earlier messages, and takes the queue that the layout has for the peer.
  { queue.open(route) }
  noexcept;
  // Puts one slot into the queue; false if there is no space.
  { queue.post(header, data, data_bytes) }
  noexcept->std::same_as<bool>;
  // Posts a message that is longer than a slot, if the queue carries such messages.
  { queue.post_long(header, payload) }
  noexcept->std::same_as<LongPost>;
  // Prepares for another message of `bytes`. Called after the peer's bell was rung, so the peer
  // does not wait for this.
  { queue.prepare_next(bytes) }
  noexcept;
  // Whether a slot can be posted.
  { queue.has_room() }
  noexcept->std::same_as<bool>;
  // Whether the receiver has finished the message with this number.
  { queue.is_consumed(index) }
  noexcept->std::same_as<bool>;
  // The number of the last posted message.
  { queue.last_index() }
  noexcept->std::same_as<uint64_t>;
};

}  // namespace bedplate
