// Processes are killed at any instruction while others exchange verified messages.
#pragma once

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// Kills `rounds` processes of one group, one after the other: at work, as they join, as they leave.
// No published message is lost or comes twice, the others go on, and the member's part, the boxes
// and the loans come back. Ends the process when anything is wrong. Once in a process.
void kill_members(GroupKind kind, bool has_boxes, uint32_t rounds, uint64_t seed);

// Kills the owner of a pool: everybody is told, receives what is left, and ends in good order.
void kill_owner(GroupKind kind, uint64_t seed);

}  // namespace bedplate::strain
