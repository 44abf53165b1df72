// Members overwrite all memory that they may write; no other member may be harmed.
#pragma once

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// Runs short episodes for `nanoseconds`, or until they have made `mutation_max` mutations. In each,
// one thread plays all members and scribbles in between. This is fast, and a seed repeats its
// episode.
void scribble_in_process(uint64_t nanoseconds, uint64_t mutation_max, uint64_t seed);
void scribble_once(GroupKind kind, uint64_t seed);
// Call share_episode() before the fork of the playing process. After a failure, say_episode()
// prints the episode.
void share_episode();
void say_episode();

// A joined process scribbles over its group's segment while the owner uses it. Another group and an
// exchange of the same pool continue verified traffic. Call it once in a process.
void scribble_beside_others(GroupKind kind, uint64_t nanoseconds, uint64_t seed);

// Runs the scribbling process.
int be_scribbler(const char* socket_path, uint64_t seed);

}  // namespace bedplate::strain
