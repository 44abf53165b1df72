// The build id of the program: the linker's hash of its content.
#pragma once

namespace bedplate {

// The build id in hexadecimal digits, as `readelf -n` shows it; "unknown" if the linker left none.
// Threads: any. Fit for signal handlers.
struct BuildId {
  char text[65] = "unknown";
};
BuildId build_id() noexcept;

}  // namespace bedplate
