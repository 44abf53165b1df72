// What `bedplate perf` has measured, as a table and as JSON.
//
// It prints on standard output, at once; docs/perf.md says what the columns and keys mean. A broken
// pipe is the command's to see. Threads: one; it allocates.
#pragma once

#include <string>
#include <vector>

#include "apps/perf/perf_client.h"

namespace bedplate {

// All of a run: what was asked for, over what it went, and a result for each size, in order.
struct PerfReport {
  PerfTask task;
  std::string address;
  PerfWay way;
  bool yields = false;
  std::vector<PerfResult> results;
};

// Words, static, as the command line takes them.
const char* to_text(PerfOperation operation) noexcept;
const char* to_text(PerfMeasure measure) noexcept;
// How both sides wait; `yields`: they let other threads have the core between polls.
std::string mode_text(PerfMode mode, bool yields);

// The device and the rest of what is used, a line each: as perftest begins.
void print_way(const PerfWay& way, const std::string& mode);

// The table, a line at a time: as soon as each is known.
void print_perf_heading(const PerfTask& task);
void print_perf_line(const PerfTask& task, const PerfResult& result);

// All of it, once it has ended: one object.
void print_perf_json(const PerfReport& report);

}  // namespace bedplate
