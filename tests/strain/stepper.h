// The single-stepped process: it sends on command, one call at a time.
#pragma once

#include <cstdint>

namespace bedplate::strain {

int be_stepper(const char* socket_path, uint64_t seed);

}  // namespace bedplate::strain
