// Between the parts of the C interface, so that a program takes of the archive only what it uses.
#pragma once

#include "transport/joined_process.h"

namespace bedplate {

// What bp_join does before the process is ready; nullptr: nothing. bp_use_verbs sets it.
extern Result<void> (*c_before_ready)(JoinedProcess& process);

}  // namespace bedplate
