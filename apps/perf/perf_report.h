// What `bedplate perf` has measured, as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "apps/perf/perf_client.h"

namespace bedplate {

struct PerfReport {
  PerfTask task;
  std::string address;
  PerfWay way;
  bool yields = false;
  std::vector<PerfResult> results;
};

const char* to_text(PerfOperation operation) noexcept;
const char* to_text(PerfMeasure measure) noexcept;
std::string mode_text(PerfMode mode, bool yields);

// The device and the rest of what is used, a line each: as perftest begins.
void print_way(const PerfWay& way, const std::string& mode);

// The table, a line at a time: as soon as each is known.
void print_perf_heading(const PerfTask& task);
void print_perf_line(const PerfTask& task, const PerfResult& result);

void print_perf_json(const PerfReport& report);

}  // namespace bedplate
