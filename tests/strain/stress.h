// All send to all, for a while; then what was sent and what was received must be the same.
#pragma once

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// One group of so many processes. Ends the process when anything is wrong. Once in a process.
void stress_group(GroupKind kind, uint32_t process_count, uint64_t nanoseconds, uint64_t seed);

}  // namespace bedplate::strain
