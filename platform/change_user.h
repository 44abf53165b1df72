// Giving up root: the whole process becomes another user, for good. The kernel keeps credentials
// for each thread alone; all of them change here (every_thread.h), and each is looked at
// afterwards. Threads: one, and nobody starts a program meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/result.h"
#include "platform/user.h"

namespace bedplate {

// Every thread of this process becomes `user`, with its groups, and keeps the capabilities `kept`
// (one bit for each) and no others; no program that it executes gets any back. Then looks at each
// thread, and tries to become root again, which must fail.
// What the process has open, mapped and locked stays. It stays as dumpable as it was: processes of
// `user` can do to it what they can do to any other of theirs (ptrace(2)).
// Requires: it is root, and `kept` has neither CAP_SETUID nor CAP_SETGID.
// Errors: the kernel's, or what a thread still has. The process may be half changed then: end it.
Result<void> become_user(const User& user, uint64_t kept);

// Whether become_user would succeed, and `user` could make and remove files in each of
// `directories`: tried in a child process. Those that are not there are passed over.
Result<void> try_user(const User& user, uint64_t kept, const std::vector<std::string>& directories);

}  // namespace bedplate
