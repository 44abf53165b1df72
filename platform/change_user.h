// Giving up root: the process becomes another user, for good.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "platform/result.h"
#include "platform/user.h"

namespace bedplate {

// This thread becomes `user`, with its groups, and keeps only the capabilities `kept` (one bit for
// each); no program that it executes gets any back. Threads that it starts later inherit this: they
// share the very credentials of this thread, which Linux demands for requests to an RDMA device.
// Then it checks each thread, and checks that becoming root again fails. Open files, mappings and
// locked memory stay. A dumpable process stays dumpable: processes of `user` can do to it what they
// can do to any other process of that user (ptrace(2)).
// Requires: this process is root, and `kept` has neither CAP_SETUID nor CAP_SETGID.
// Errors (kSystem): the kernel's, or another thread that exists already and stays root, or ends
// during the check. The process may be half changed then: end it.
Result<void> become_user(const User& user, uint64_t kept);

// Tries the operations that this process needs, and appends each failure to `problems`.
using Look = std::function<void(std::vector<Error>* problems)>;

// Calls `look` in a forked child that has become `user`; the child has the calling thread alone.
// This process may see the child's writes to objects on the heap (alloc/child_heap.h).
// Errors (kSystem): the fork or its pipe fails, or the child ends before it has reported; then
// `problems` has the reports so far. A child that cannot become `user` is reported in `problems`.
Result<void> look_as_user(const User& user, uint64_t kept, const Look& look,
                          std::vector<Error>* problems);

}  // namespace bedplate
