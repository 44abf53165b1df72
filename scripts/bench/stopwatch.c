// Preloaded with every allocator into programs that we did not write: measures from the moment when
// all preloaded libraries are set up to the program's end. So a pool taken, or hugepages reserved,
// before main do not count as the program's time: boot_bench.py measures that.
//
// As it is first in LD_PRELOAD, its constructor runs last and its destructor first. It writes the
// line to the descriptor in BENCH_STOPWATCH_FD.
#include <stdlib.h>

#include "measured_region.h"

static struct reading begin;

__attribute__((constructor)) static void start(void) { begin = read_costs(); }

__attribute__((destructor)) static void stop(void) {
  const struct reading end = read_costs();
  const char* fd = getenv("BENCH_STOPWATCH_FD");
  if (fd != NULL) print_costs(atoi(fd), begin, end, 1);
}
