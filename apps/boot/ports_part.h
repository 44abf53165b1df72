// Ports through DPDK, where the program has them: libbedplate-dpdk.a. The runtime knows of them
// only this; they are a service (apps/ports/).
#pragma once

namespace bedplate {

struct PortsPart {
  const char* (*drivers)() noexcept;         // with blanks between them
  const char* (*why_impossible)() noexcept;  // nullptr: they could run here
};

// nullptr: the program was linked without it.
const PortsPart* ports_part() noexcept;

}  // namespace bedplate
