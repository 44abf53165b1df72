// The costs of a measured region: wall-clock time, processor time, page faults. Plain C: it is part
// of a benchmark program and of an object preloaded into foreign programs.
#pragma once

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

struct reading {
  double wall_s, cpu_s;
  long faults;  // minor and major faults
};

static inline double seconds_of(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// Reads the costs of the whole process, including all threads.
static inline struct reading read_costs(void) {
  struct reading now;
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  now.wall_s = seconds_of(CLOCK_MONOTONIC);
  now.cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  now.faults = usage.ru_minflt + usage.ru_majflt;
  return now;
}

// Prints one line of JSON, the input of alloc_bench.py.
static inline void print_costs(int fd, struct reading begin, struct reading end,
                               double operations) {
  dprintf(fd, "{\"operations\": %.0f, \"wall_s\": %.9f, \"cpu_s\": %.9f, \"faults\": %ld}\n",
          operations, end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s,
          end.faults - begin.faults);
}
