// The interface of the three kinds of queues that lead to a peer. Each has a class for its sending
// end: FifoSender, BoxSender, LaneSender.
//
// They have no base class: the kind of group decides which one leads to a peer (GroupTraits), until
// a box is given or taken away, and OutgoingWay::with_queue() is the one place that asks.
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
  kElsewhere,  // it does not carry such a message: post() says where in the eager region it lies
};

struct SlotHeader;
class EagerStock;
class OutgoingWay;
class ShmPlace;

// The peer that a queue leads to, and the parts that it uses; all of it outlives the queue.
struct OutgoingRoute {
  const ShmPlace& place;
  EagerStock& stock;  // of the sender's own eager region
  OutgoingWay& way;   // whose queue it is
  uint32_t peer;
};

// Threads: the sender's.
template <typename Queue>
concept OutgoingQueue = requires(Queue queue, const OutgoingRoute& route, const SlotHeader& header,
                                 const std::byte* data, size_t data_bytes,
                                 std::span<const std::byte> payload, uint32_t bytes,
                                 uint64_t index) {
  // Begins anew, at the place that the layout has for the peer's.
  { queue.open(route) }
  noexcept;
  // Puts one slot into it; false when there is no room.
  { queue.post(header, data, data_bytes) }
  noexcept->std::same_as<bool>;
  // The same for a message that is longer than a slot, if the queue carries such.
  { queue.post_long(header, payload) }
  noexcept->std::same_as<LongPost>;
  // After one of `bytes` was posted, and nobody waits for it any more.
  { queue.prepare_next(bytes) }
  noexcept;
  // Whether a slot can be posted.
  { queue.has_room() }
  noexcept->std::same_as<bool>;
  // Whether the receiver is done with a message, by its number.
  { queue.is_consumed(index) }
  noexcept->std::same_as<bool>;
  // The number of the message that was posted last.
  { queue.last_index() }
  noexcept->std::same_as<uint64_t>;
};

}  // namespace bedplate
