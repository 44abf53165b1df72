#include "platform/forbidden_calls.h"

#include <cerrno>
#include <cstdio>

#include <unistd.h>

namespace bedplate {
namespace {

// The errno value of a forbidden call; 0: the call is allowed.
int refusal_of(const CallTrial& trial) noexcept {
  const auto& with = trial.arguments;
  errno = 0;
  if (syscall(trial.number, with[0], with[1], with[2], with[3], with[4], with[5]) != -1) return 0;
  if (!says_forbidden(errno) || (errno == ENOSYS && trial.may_be_missing)) return 0;
  return errno;
}

}  // namespace

bool says_forbidden(int error_number) noexcept {
  return error_number == EPERM || error_number == ENOSYS;
}

Error& set_cure_of_forbidden(Error* error, const char* calls) noexcept {
  return error->set_cure("a seccomp profile forbids %s: allow it, in SystemCallFilter= of the unit "
                         "or --security-opt seccomp= of the container",
                         calls);
}

Result<void> try_calls(std::span<const CallTrial> trials) noexcept {
  char names[160] = "";
  size_t used = 0;
  size_t count = 0;
  int refusal = 0;
  for (const CallTrial& trial : trials) {
    const int outcome = refusal_of(trial);
    if (outcome == 0) continue;
    if (refusal == 0) refusal = outcome;
    ++count;
    const char* separator = count > 1 ? ", " : "";
    const auto rest = static_cast<size_t>(
        std::snprintf(names + used, sizeof names - used, "%s%s", separator, trial.name));
    if (rest < sizeof names - used) {
      used += rest;
    } else {
      names[used] = '\0';  // drops a name that did not fit
    }
  }
  if (refusal == 0) return {};
  Error error = error_while("trying the system calls that it needs").set_answer_errno(refusal);
  return set_cure_of_forbidden(&error, names);
}

}  // namespace bedplate
