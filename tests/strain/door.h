// Strangers flood the join socket, and a member seals and punches holes in its files, while other
// members are killed, join and send.
#pragma once

#include <cstdint>

namespace bedplate::strain {

int be_flooder(const char* socket_path, uint64_t seed);
int be_sealer(const char* socket_path, uint64_t seed);

void strain_door(uint64_t nanoseconds, uint64_t seed);

}  // namespace bedplate::strain
