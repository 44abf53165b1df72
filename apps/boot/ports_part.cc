#include "apps/boot/ports_part.h"

// apps/ports/port_service.cc defines it; a program with DPDK ports asks for it (-Wl,-u;
// bedplate-dpdk.pc).
extern "C" [[gnu::weak]] const bedplate::PortsPart bedplate_ports_part;

namespace bedplate {

const PortsPart* ports_part() noexcept { return &bedplate_ports_part; }

}  // namespace bedplate
