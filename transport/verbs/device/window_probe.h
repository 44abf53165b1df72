// Probes if a device holds peers to the bounds of a memory window.
//
// Some devices bind windows but let a peer read past their end, up to the end of the memory region
// (DeviceQuirks::ignores_window_bounds). The probe tries it once, at boot, on two queue pairs of
// its own: it binds a window and reads past its end. docs/verbs.md tells the consequences.
#pragma once

namespace bedplate {

class VerbsDevice;

// Returns true if a read within a window worked and a read past its end was refused; false also if
// the probe cannot be made. Leaves nothing behind. Requires: `device` has no other user yet.
bool probe_windows(const VerbsDevice& device) noexcept;

}  // namespace bedplate
