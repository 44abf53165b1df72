// Environment variables: the one place where the runtime reads them.
//
// A program with more rights than the user who starts it (setuid, setgid, file capabilities) gets
// that user's environment. Such a program does not trust it: every variable counts as absent.
// (scripts/layers.sh refuses getenv elsewhere.)
#pragma once

namespace bedplate {

// The value of the variable `name`, or nullptr if it is absent or not trusted. It stays valid until
// the program changes its environment. Allocates nothing: it may be called before main.
const char* environment_text(const char* name) noexcept;

// Removes the variable `name` from the environment, so that programs started by this one do not
// inherit it. For variables meant for this process alone. Threads: call it before other threads
// start.
void forget_environment_text(const char* name) noexcept;

}  // namespace bedplate
