// Ports through DPDK, if the program has them: libbedplate-dpdk.a. They are a service
// (apps/ports/); the runtime knows no more of them than this.
#pragma once

namespace bedplate {

struct PortsPart {
  const char* (*drivers)() noexcept;         // with blanks between them
  const char* (*why_impossible)() noexcept;  // nullptr: they could run here
};

// nullptr: the program was linked without it.
const PortsPart* ports_part() noexcept;

}  // namespace bedplate
