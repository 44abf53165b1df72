// Members that are stopped and go on, beside others that are killed and join anew.
#pragma once

#include <cstdint>

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// Makes `events` stops and kills, at random, while all send verified messages to one another; then
// one long stop, if possible of a member that has claimed a slot, until as many others as there are
// spare places were killed, each has a successor, and messages went between all that run.
void stop_members(GroupKind kind, uint32_t events, uint64_t seed);

}  // namespace bedplate::strain
