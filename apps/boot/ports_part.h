// Ports through DPDK: libbedplate-dpdk.a, which a program may link. They are a service
// (apps/ports/). The runtime knows only this struct of them.
#pragma once

namespace bedplate {

struct PortsPart {
  const char* (*drivers)() noexcept;         // their names, with blanks between them
  const char* (*why_impossible)() noexcept;  // nullptr: they could run here
};

// nullptr: the program was linked without libbedplate-dpdk.a.
const PortsPart* ports_part() noexcept;

}  // namespace bedplate
