// Processes are killed at any instruction while others exchange verified messages.
#pragma once

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// Kills `rounds` processes of one group, one after the other: at work, as they join, as they leave.
// No published message is lost or duplicated, the others continue, and the member's slot, boxes and
// loans are recovered. Ends the process on any fault. Call it once in a process.
void kill_members(GroupKind kind, bool has_boxes, uint32_t rounds, uint64_t seed);

// Kills the owner of a pool: all members are notified, receive the remaining messages, and exit.
void kill_owner(GroupKind kind, uint64_t seed);

}  // namespace bedplate::strain
