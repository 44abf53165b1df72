// What the three kinds of queues that lead to a peer have in common. Each has a class for its
// sending end (FifoSender, BoxSender, LaneSender) with the same functions:
//
//     post()         puts one slot into it; false when there is no room
//     post_long()    the same for a message that is longer than a slot, where it carries such
//     has_room()     whether a slot can be posted
//     is_consumed()  whether the receiver is done with a message, by its number
//     last_index()   the number of the message that was posted last
//
// They have no base: which one a peer is sent to by is decided when a box is given or taken away,
// and OutgoingWay::with_queue() is the one place that asks.
#pragma once

#include <cstdint>

namespace bedplate {

enum class QueueKind : uint8_t { kFifo, kBox, kLane };

enum class LongPost : uint8_t {
  kPosted,
  kNoRoom,
  kElsewhere,  // it does not carry such a message: post() says where in the eager region it lies
};

}  // namespace bedplate
