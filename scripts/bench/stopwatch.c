// Preloaded beside every allocator into programs that we did not write: measures from the moment
// when everything preloaded has been set up to the program's end. So a pool that is taken, or
// hugepages that are reserved, before main are not counted as the program's time: boot_bench.py
// measures that.
//
// Named first in LD_PRELOAD its constructor runs last and its destructor first. The line goes to
// the descriptor that BENCH_STOPWATCH_FD names.
#include <stdlib.h>

#include "measured_region.h"

static struct reading begin;

__attribute__((constructor)) static void start(void) { begin = read_costs(); }

__attribute__((destructor)) static void stop(void) {
  const struct reading end = read_costs();
  const char* fd = getenv("BENCH_STOPWATCH_FD");
  if (fd != NULL) print_costs(atoi(fd), begin, end, 1);
}
