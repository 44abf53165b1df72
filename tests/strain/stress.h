// All members send to all for a while; then the sent and the received messages must match.
#pragma once

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// Runs one group of `process_count` processes. Ends the process on any fault. Call it once in a
// process.
void stress_group(GroupKind kind, uint32_t process_count, uint64_t nanoseconds, uint64_t seed);

}  // namespace bedplate::strain
