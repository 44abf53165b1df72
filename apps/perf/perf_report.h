// The report of `bedplate perf`, as a table and as JSON.
//
// It prints on standard output, at once; docs/perf.md explains columns and keys. The command must
// check for a broken pipe. Threads: one; it allocates.
#pragma once

#include <string>
#include <vector>

#include "apps/perf/perf_client.h"

namespace bedplate {

// A whole run: its task, its connection, and a result for each size, in order.
struct PerfReport {
  PerfTask task;
  std::string address;
  PerfConnection connection;
  bool yields = false;
  std::vector<PerfResult> results;
};

// Static words, as on the command line.
const char* to_text(PerfOperation operation) noexcept;
const char* to_text(PerfMeasure measure) noexcept;
const char* to_text(PerfMode mode) noexcept;
// How both sides wait; `yields`: they yield the core between polls.
std::string mode_text(PerfMode mode, bool yields);

// Prints the properties of the connection except its MTU, one a line, and `mode` unless empty.
void print_connection(const PerfConnection& connection, const std::string& mode);

// Print the table, each line as soon as its result exists.
void print_perf_heading(const PerfTask& task);
void print_perf_line(const PerfTask& task, const PerfResult& result);

// Prints the whole run, after its end, as one object.
void print_perf_json(const PerfReport& report);

}  // namespace bedplate
