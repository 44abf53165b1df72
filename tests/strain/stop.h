// Members are stopped and resumed, while others are killed and rejoin.
#pragma once

#include <cstdint>

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// Makes `events` random stops and kills while all members send each other verified messages. Then
// makes one long stop, if possible of a member that has claimed a slot. It lasts until as many
// others as there are spare slots were killed, each has a successor, and all running members have
// exchanged messages.
void stop_members(GroupKind kind, uint32_t events, uint64_t seed);

}  // namespace bedplate::strain
