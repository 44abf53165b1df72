// The owner is killed while all members sleep: each must be notified.
#pragma once

#include <cstdint>

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

int be_sleeper(const char* socket_path, uint64_t seed);

void kill_owner_of_sleepers(GroupKind kind, uint32_t rounds, uint64_t seed);

}  // namespace bedplate::strain
