#include "apps/perf/perf_report.h"

#include <cinttypes>
#include <cstdio>

#include "apps/program/json_output.h"
#include "platform/assert.h"
#include "platform/histogram.h"

namespace bedplate {
namespace {

// Send and put measure a round trip, which counts as two trips.
double trip_count(PerfOperation operation) noexcept {
  return operation == PerfOperation::kGet ? 1 : 2;
}

double per_second(uint64_t count, uint64_t elapsed_ns) noexcept {
  return elapsed_ns == 0 ? 0 : static_cast<double>(count) * 1e9 / static_cast<double>(elapsed_ns);
}

double rate(const PerfResult& result) noexcept {
  return per_second(result.count, result.elapsed_ns) +
         per_second(result.back_count, result.back_elapsed_ns);
}

JsonValue latency_json(const PerfTask& task, const PerfResult& result) {
  const double trips = trip_count(task.operation);
  const LatencyHistogram& times = result.times;
  BP_ASSERT(times.count() == result.count);  // each operation was timed
  JsonValue json = {{"bytes", result.bytes},
                    {"count", result.count},
                    {"min_ns", static_cast<double>(times.min_ns()) / trips}};
  for (const Percentile& percentile : kPercentiles) {
    json[std::string(percentile.key) + "_ns"] =
        static_cast<double>(times.percentile_ns(percentile.share)) / trips;
  }
  json["mean_ns"] = times.mean_ns() / trips;
  json["verified"] = result.verified_count;
  return json;
}

JsonValue bandwidth_json(const PerfTask& task, const PerfResult& result) {
  JsonValue json = {{"bytes", result.bytes},
                    {"count", result.count},
                    {"elapsed_ns", result.elapsed_ns},
                    {"bytes_per_second", rate(result) * static_cast<double>(result.bytes)},
                    {"operations_per_second", rate(result)}};
  if (task.is_both) {
    json["back_count"] = result.back_count;
    json["back_elapsed_ns"] = result.back_elapsed_ns;
  }
  json["verified"] = result.verified_count;
  return json;
}

}  // namespace

const char* to_text(PerfOperation operation) noexcept {
  switch (operation) {
    case PerfOperation::kSend: return "send";
    case PerfOperation::kPut: return "put";
    case PerfOperation::kGet: break;
  }
  return "get";
}

const char* to_text(PerfMeasure measure) noexcept {
  return measure == PerfMeasure::kLatency ? "latency" : "bandwidth";
}

const char* to_text(PerfMode mode) noexcept {
  return mode == PerfMode::kEvents ? "events" : "polling";
}

std::string mode_text(PerfMode mode, bool yields) {
  if (mode == PerfMode::kEvents) return to_text(mode);
  return yields ? "polling, yielding the only processor" : "polling";
}

void print_connection(const PerfConnection& connection, const std::string& mode) {
  std::printf("  provider  %s\n", connection.provider.c_str());
  if (!connection.device.empty()) std::printf("  device    %s\n", connection.device.c_str());
  if (!connection.link.empty()) std::printf("  link      %s\n", connection.link.c_str());
  std::printf("  pool      %s in pages of %s\n", format_bytes(connection.pool_bytes).text,
              format_bytes(page_bytes(connection.page)).text);
  if (!mode.empty()) std::printf("  mode      %s\n", mode.c_str());
}

void print_perf_heading(const PerfTask& task) {
  if (task.measure == PerfMeasure::kBandwidth) {
    std::printf("\n%10s %10s %12s %14s\n", "bytes", "count", "MB/s",
                task.operation == PerfOperation::kSend ? "messages/s" : "operations/s");
    std::fflush(stdout);
    return;
  }
  std::printf("\n%10s %10s %10s", "bytes", "count", "min");
  for (const Percentile& percentile : kPercentiles) std::printf(" %10s", percentile.name);
  std::printf("   us, %s\n",
              trip_count(task.operation) == 2 ? "half of a round trip" : "round trip");
  std::fflush(stdout);
}

void print_perf_line(const PerfTask& task, const PerfResult& result) {
  std::printf("%10" PRIu64 " %10" PRIu64, result.bytes, result.count + result.back_count);
  if (task.measure == PerfMeasure::kBandwidth) {
    std::printf(" %12.2f %14.0f\n", rate(result) * static_cast<double>(result.bytes) / 1e6,
                rate(result));
  } else {
    const auto print = [&](uint64_t ns) {
      std::printf(" %10.3f", static_cast<double>(ns) / trip_count(task.operation) / 1e3);
    };
    print(result.times.min_ns());
    for (const Percentile& percentile : kPercentiles) {
      print(result.times.percentile_ns(percentile.share));
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

void print_perf_json(const PerfReport& report) {
  const PerfTask& task = report.task;
  const bool is_latency = task.measure == PerfMeasure::kLatency;
  JsonValue json = {{"operation", to_text(task.operation)},
                    {"measure", to_text(task.measure)},
                    {"address", report.address},
                    {"provider", report.connection.provider}};
  if (!report.connection.device.empty()) {
    json["device"] = report.connection.device;
    json["link"] = report.connection.link;
    json["mtu_bytes"] = report.connection.mtu_bytes;
  }
  json["pool_bytes"] = report.connection.pool_bytes;
  json["page_bytes"] = page_bytes(report.connection.page);
  json["mode"] = to_text(task.mode);
  json["yields"] = report.yields;
  json["both"] = task.is_both;
  if (is_latency) json["is_half_round_trip"] = trip_count(task.operation) == 2;
  json["results"] = JsonValue::array();
  for (const PerfResult& result : report.results) {
    json["results"].push_back(is_latency ? latency_json(task, result)
                                         : bandwidth_json(task, result));
  }
  print_json(json);
}

}  // namespace bedplate
