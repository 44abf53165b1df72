// Members overwrite all memory that they may write; no other member may be harmed.
#pragma once

#include "transport/shm/membership/group_layout.h"

namespace bedplate::strain {

// One thread plays all the members and scribbles in between, in short episodes, each of which its
// seed repeats; until the time is over or there were so many mutations. For speed, and for replay.
void scribble_in_process(uint64_t nanoseconds, uint64_t mutation_max, uint64_t seed);
void scribble_once(GroupKind kind, uint64_t seed);
// share_episode() before the playing process is forked; say_episode() names the episode after it
// has failed.
void share_episode();
void say_episode();

// A joined process scribbles over its group's segment while the owner uses it. Another group and an
// exchange of the same pool continue verified traffic. Call it once in a process.
void scribble_beside_others(GroupKind kind, uint64_t nanoseconds, uint64_t seed);

// Runs the scribbling process.
int be_scribbler(const char* socket_path, uint64_t seed);

}  // namespace bedplate::strain
