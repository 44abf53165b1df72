// Probes for those who look on from outside with bpftrace or perf (USDT): one nop in the code each,
// and a note in the program (.note.stapsdt) that says where it is and where its arguments lie.
//
// Nothing happens at a probe that nobody looks at. Arguments are integers and pointers that are at
// hand anyway: none is computed for a probe. docs/trace.md lists them all, and
// tests/system/trace_test.py compares. It is no installed header: it needs systemtap-sdt-dev.
#pragma once

#define SDT_USE_VARIADIC 1  // what has any number of arguments
#include <sys/sdt.h>

// BP_USDT(name, argument...): the probe usdt:PROGRAM:bedplate:name.
#define BP_USDT(...) STAP_PROBEV(bedplate, __VA_ARGS__)
