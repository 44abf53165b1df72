// The traits of the kinds of groups, a row for each kind.
//
// A further kind needs a row here, its name and number in group_shape.cc, classes for its queues in
// two files (OutgoingPath for queues to peers, Inbox for queues from them), and the offsets of its
// bytes (GroupLayout, GroupSegment::reset_member). All other code of the transport asks for a
// trait, not for the kind; the configuration and the plan ask for the kind.
#pragma once

#include <cstdint>

#include "platform/cache_line.h"
#include "transport/shm/membership/group_shape.h"
#include "transport/shm/queue/outgoing_queue.h"

namespace bedplate {

struct GroupTraits {
  uint32_t member_count_min = 1;
  uint32_t member_count_max = kMemberCountMax;
  // The queue to a peer that has given no box.
  QueueKind first_queue = QueueKind::kFifo;
  // Receivers give boxes to frequent senders.
  bool gives_boxes = false;
  // Members trust one another: they read the others' data in place.
  bool has_trust = true;
  // Each member has an eager region, for messages that do not fit into a slot, and for operations.
  bool has_eager_region = true;
  // The bytes of the sender's eager region that each slot takes.
  uint32_t slot_eager_bytes = 0;
};

constexpr GroupTraits group_traits(GroupKind kind) noexcept {
  switch (kind) {
    case GroupKind::kLazy: return {.first_queue = QueueKind::kFifo, .gives_boxes = true};
    case GroupKind::kMesh:
      return {.first_queue = QueueKind::kLane, .slot_eager_bytes = kCacheLineBytes};
    case GroupKind::kExchange:
      return {.member_count_min = 2,
              .member_count_max = 2,
              .first_queue = QueueKind::kBox,
              .has_trust = false,
              .has_eager_region = false};
  }
  return {};
}

}  // namespace bedplate
