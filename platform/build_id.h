// Which build of the program this is: what the linker made of all that is in it.
#pragma once

namespace bedplate {

// In hexadecimal digits, as `readelf -n` shows it; "unknown" where the linker left none.
// Threads: any. Fit for signal handlers.
struct BuildId {
  char text[65] = "unknown";
};
BuildId build_id() noexcept;

}  // namespace bedplate
