// Probes if a device holds peers to the bounds of a memory window.
//
// Some bind windows and let a peer read past their end, as far as the region below reaches
// (DeviceQuirks::ignores_window_bounds). So we try it, once at boot, on two queue pairs of our own:
// a window on some bytes, a read of more. docs/verbs.md tells what follows if the read succeeds.
#pragma once

namespace bedplate {

class VerbsDevice;

// Returns true if a read within a window worked and one past its end was refused. If it cannot try,
// it returns false. Leaves nothing behind. Requires: nobody uses `device` yet.
bool probe_windows(const VerbsDevice& device) noexcept;

}  // namespace bedplate
