// Users of the system, by name or number. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/result.h"

namespace bedplate {

// The number of the user `text`: digits as they are, else the name's in /etc/passwd. Only there:
// a static program cannot ask the services behind nsswitch, so users from elsewhere are written as
// numbers.
// Errors: no such user (kConfiguration).
Result<uint32_t> find_user_id(const char* text) noexcept;

// The number of the group `text`, likewise, of /etc/group. Errors: no such group (kConfiguration).
Result<uint32_t> find_group_id(const char* text) noexcept;

// The identity of a user's process.
struct User {
  std::string name;  // as it was asked for
  uint32_t id = 0;
  uint32_t group = 0;
  std::vector<uint32_t> groups;  // all of its groups, that one among them
};

// The user `text`, a name or a number, with its groups, of /etc/passwd and /etc/group.
// Errors: no such user there (kConfiguration): of a mere number the group is not known.
Result<User> find_user(const char* text);

// The user that this process runs as.
uint32_t own_user() noexcept;

// Whether processes of the user `id` can do whatever they like to one of the user `own`
// (ptrace(2)): root's, and those of the same.
constexpr bool is_own_user(uint32_t id, uint32_t own) noexcept { return id == 0 || id == own; }

}  // namespace bedplate
