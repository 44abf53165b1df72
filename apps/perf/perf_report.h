// The report of `bedplate perf`, as a table and as JSON.
//
// It prints on standard output, at once; docs/perf.md says what the columns and keys mean. The
// command must check for a broken pipe. Threads: one; it allocates.
#pragma once

#include <string>
#include <vector>

#include "apps/perf/perf_client.h"

namespace bedplate {

// A whole run: its task, the connection it used, and a result for each size, in order.
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
const char* to_text(PerfMode mode) noexcept;
// How both sides wait; `yields`: they let other threads have the core between polls.
std::string mode_text(PerfMode mode, bool yields);

// Prints the device and the other properties of the connection, a line each, as perftest begins.
void print_way(const PerfWay& way, const std::string& mode);

// Print the table, each line as soon as it is known.
void print_perf_heading(const PerfTask& task);
void print_perf_line(const PerfTask& task, const PerfResult& result);

// Prints the whole run, after its end, as one object.
void print_perf_json(const PerfReport& report);

}  // namespace bedplate
