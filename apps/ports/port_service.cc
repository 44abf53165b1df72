// Tested by tests/system/command_line_test.py.
#include "apps/boot/ports_part.h"
#include "transport/dpdk/eal/drivers.h"
#include "transport/dpdk/eal/eal.h"

extern "C" const bedplate::PortsPart bedplate_ports_part;
const bedplate::PortsPart bedplate_ports_part = {&bedplate::dpdk_drivers,
                                                 &bedplate::eal_is_impossible};
