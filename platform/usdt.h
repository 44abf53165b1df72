// Static probes for bpftrace and perf (USDT): each is one nop in the code, and a note in the
// program (.note.stapsdt) with its address and the locations of its arguments.
//
// A probe that nobody traces does nothing. Arguments are integers and pointers that the code has
// anyway: none is computed for a probe. docs/trace.md lists all probes; tests/system/trace_test.py
// compares that list with the program. This header is not installed: it needs systemtap-sdt-dev.
#pragma once

#define SDT_USE_VARIADIC 1  // allows any number of arguments
#include <sys/sdt.h>

// BP_USDT(name, argument...): the probe usdt:PROGRAM:bedplate:name.
#define BP_USDT(...) STAP_PROBEV(bedplate, __VA_ARGS__)
