// Declarations that the parts of the C interface share. The interface has several files, so that a
// program links only the parts of the archive that it uses.
#pragma once

#include "apps/c_interface/bedplate.h"
#include "apps/c_interface/error_c.h"
#include "transport/messages/joined_process.h"

// A member as C sees it: its messenger, and C's functions for each kind of message.
struct bp_member {
  struct Handler {
    bp_handler function = nullptr;
    void* context = nullptr;
  };
  bedplate::Messenger* messenger = nullptr;
  bedplate::MemberDescriptor* descriptor = nullptr;  // set by bp_member_fd
  unsigned number = 0;
  Handler handlers[bedplate::kAmCount];
};

namespace bedplate {

// bp_join calls this function before the process is ready; nullptr: none. bp_use_verbs sets it.
extern Result<void> (*c_before_ready)(JoinedProcess& process);

}  // namespace bedplate
