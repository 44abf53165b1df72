// The environment's variables: the one place where the runtime reads them.
//
// A program that has more rights than the user who starts it (setuid, setgid, file capabilities)
// gets that user's environment. It obeys none of it: there, every variable is absent.
// (scripts/layers.sh refuses getenv elsewhere.)
#pragma once

namespace bedplate {

// The value of the variable `name`, or nullptr if it is absent or not to be trusted. It stays valid
// until the program changes its environment. Allocates nothing: it may be called before main.
const char* environment_text(const char* name) noexcept;

// Takes the variable `name` out of the environment, so that programs that this one starts do not
// get it: for variables that are meant for this process alone. Threads: before there are others.
void forget_environment_text(const char* name) noexcept;

}  // namespace bedplate
