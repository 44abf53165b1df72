// The build id of the program: the linker's hash of its content.
#pragma once

namespace bedplate {

// The build id in hexadecimal digits, as `readelf -n` shows it, 64 digits at most; "unknown" if the
// linker left none. Threads: any. Allocates nothing, but takes the loader's lock: for a signal
// handler, call it before and keep the text.
struct BuildId {
  char text[65] = "unknown";
};
BuildId build_id() noexcept;

}  // namespace bedplate
