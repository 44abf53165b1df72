// Giving up root: the process becomes another user, for good.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "platform/result.h"
#include "platform/user.h"

namespace bedplate {

// This thread becomes `user`, with its groups, and keeps the capabilities `kept` (one bit for each)
// and no others; no program that it executes gets any back. So do all threads that it starts from
// now on: they have the very credentials of this one, which Linux demands for requests to an RDMA
// device. Then looks at each thread, and tries to become root again, which must fail. Open files,
// mappings and locked memory stay. It stays as dumpable as it was: processes of `user` can do to it
// what they can do to any other of theirs (ptrace(2)).
// Requires: it is root, and `kept` has neither CAP_SETUID nor CAP_SETGID.
// Errors: the kernel's, or another thread that is there already, which stays root. The process may
// be half changed then: end it.
Result<void> become_user(const User& user, uint64_t kept);

// Tries what this process can do, and appends each failure to `problems`.
using Look = std::function<void(std::vector<Error>* problems)>;

// Calls `look` in a child of this process, with its calling thread alone, that has become `user`.
// This process may see the child's writes to objects on the heap (alloc/child_heap.h).
// Errors: such a child cannot be had. Why it cannot become `user` is one of the problems.
Result<void> look_as_user(const User& user, uint64_t kept, const Look& look,
                          std::vector<Error>* problems);

}  // namespace bedplate
