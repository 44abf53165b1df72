// Users of the system, by name or number. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/result.h"

namespace bedplate {

// The number of the user `text`. Digits are the number itself, which need not be in /etc/passwd;
// other text is a name, looked up there. A static program cannot ask the services behind nsswitch,
// so users from elsewhere are given as numbers.
// Errors: no such user, or the file cannot be read (kConfiguration).
Result<uint32_t> find_user_id(const char* text) noexcept;

// The number of the group `text`, in the same way, by /etc/group. Errors (kConfiguration): no such
// group, or the file cannot be read.
Result<uint32_t> find_group_id(const char* text) noexcept;

// The identity of a process.
struct User {
  std::string name;  // as given to find_user()
  uint32_t id = 0;
  uint32_t group = 0;
  std::vector<uint32_t> groups;  // all of its groups; `group` is the first
};

// The user `text`, a name or a number, with its groups, from /etc/passwd and /etc/group. If
// /etc/group cannot be read, the user has one group.
// Errors: no such user in /etc/passwd (kConfiguration): a number alone does not give the group.
Result<User> find_user(const char* text);

// The effective user of this process.
uint32_t own_user() noexcept;

// Whether processes of the user `id` can fully control a process of the user `own` (ptrace(2)):
// processes of root and of the same user can.
constexpr bool is_own_user(uint32_t id, uint32_t own) noexcept { return id == 0 || id == own; }

}  // namespace bedplate
