// Probes whether a device enforces the bounds of a memory window.
//
// Some devices bind windows but let a peer read past their end, up to the end of the memory region
// (DeviceQuirks::ignores_window_bounds). The probe runs once, when the device is opened. It
// connects two queue pairs of its own, binds a window, and reads past the window's end.
// docs/verbs.md tells the consequences.
#pragma once

namespace bedplate {

class VerbsDevice;

// Returns true if the device allows a read within a window and refuses a read past its end. Returns
// false otherwise, and also if the probe itself fails. Leaves nothing behind. Requires: `device`
// has no other user yet.
bool probe_windows(const VerbsDevice& device) noexcept;

}  // namespace bedplate
