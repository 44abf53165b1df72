// `trace`: the last requests, with the stations that they passed, read from the counters file
// alone.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>

#include "apps/counters/counters_reader.h"
#include "apps/program/commands.h"
#include "apps/program/counters/counter_text.h"
#include "apps/program/json_output.h"
#include "platform/assert.h"
#include "platform/text.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// The time between two readings of --follow: a shard's ring must hold the requests that end
// meanwhile.
constexpr long kLookNs = 100 * static_cast<long>(kNsPerMs);

// "2ms", "500us", "1s", "800ns" -> ns. Nothing for anything else.
std::optional<uint64_t> parse_time(std::string_view text) noexcept {
  struct Unit {
    const char* name;
    uint64_t ns;
  };
  constexpr Unit kUnits[] = {{"ns", 1}, {"us", kNsPerUs}, {"ms", kNsPerMs}, {"s", kNsPerSecond}};
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    if (digits == 9) return {};
    value = value * 10 + static_cast<uint64_t>(text[digits] - '0');
  }
  for (const Unit& unit : kUnits) {
    if (digits > 0 && text.substr(digits) == unit.name) return value * unit.ns;
  }
  return {};
}

struct Wish {
  std::string service;  // empty: all
  uint64_t slower_than_ns = 0;
  bool as_json = false;
};

std::string time_text(uint64_t ns) { return value_text(ns, "ns", true); }

JsonValue json_of(const SeenRequest& request) {
  JsonValue stations = JsonValue::object();
  for (const SeenStation& station : request.stations) stations[station.name] = station.after_ns;
  JsonValue json = JsonValue::object();
  json["shard"] = request.shard;
  json["number"] = request.number;
  json["service"] = request.service;
  json["kind"] = request.kind;
  json["subject"] = request.subject;
  json["handle"] = request.handle;
  json["bytes"] = request.bytes;
  json["begin_ns"] = request.begin_ns;
  json["total_ns"] = request.total_ns();
  json["slowest"] = request.stations[request.slowest()].name;
  json["stations"] = std::move(stations);
  return json;
}

void print_request(const SeenRequest& request) {
  const size_t slowest = request.slowest();
  std::string head = request.service + " " + request.kind;
  if (!request.subject.empty()) head += " " + request.subject;
  std::printf("%s, %s, 0x%" PRIx64 ", shard %s: %s", head.c_str(),
              value_text(request.bytes, "bytes", true).c_str(), request.handle,
              request.shard.c_str(), time_text(request.total_ns()).c_str());
  if (slowest > 0) {
    const uint64_t ns = request.stations[slowest].after_ns - request.stations[slowest - 1].after_ns;
    std::printf(", %s of it from %s to %s", time_text(ns).c_str(),
                request.stations[slowest - 1].name.c_str(), request.stations[slowest].name.c_str());
  }
  std::printf("\n ");
  for (const SeenStation& station : request.stations) {
    std::printf(" %s %s", station.name.c_str(), time_text(station.after_ns).c_str());
  }
  std::printf("\n");
}

// Prints the requests of `seen` that match `wish`.
void print_requests(const TraceSnapshot& seen, const Wish& wish, ToldRequests* told) {
  for (const SeenRequest& request : seen.requests()) {
    BP_ASSERT(!request.stations.empty());  // the first one is its begin
    uint64_t& before = (*told)[request.shard];
    if (before > 0 && request.number > before + 1 && !wish.as_json) {
      std::printf("(%" PRIu64 " requests of shard %s were missed between two reads)\n",
                  request.number - before - 1, request.shard.c_str());
    }
    before = request.number;
    if (!wish.service.empty() && request.service != wish.service) continue;
    if (request.total_ns() <= wish.slower_than_ns && wish.slower_than_ns > 0) continue;
    if (wish.as_json) {
      print_json(json_of(request), -1);
    } else {
      print_request(request);
    }
  }
  std::fflush(stdout);
}

Error no_such_service(const std::string& service, const TraceSnapshot& seen) {
  std::string all;
  for (const std::string& name : seen.services()) add_word(&all, name);
  return configuration_error_while("looking for requests of %s", service.c_str())
      .set_answer("the appliance traces those of: %s", all.c_str())
      .set_cure("name one of these, or leave --service out");
}

}  // namespace

int trace_command(const Arguments& arguments) {
  Wish wish;
  wish.service = arguments.value("--service");
  wish.as_json = arguments.has("--json");
  const std::string slower_than = arguments.value("--slower-than", "0ns");
  const auto slower_than_ns = parse_time(slower_than);
  if (!slower_than_ns) {
    return usage_failure("--slower-than takes a time such as 500us, 2ms or 1s, not", slower_than,
                         "trace");
  }
  wish.slower_than_ns = *slower_than_ns;
  auto opened = open_counters(arguments);
  if (!opened.ok()) return fail(opened.error());
  const CountersReader& reader = opened.value();
  ToldRequests told;
  while (true) {
    const bool is_last = !arguments.has("--follow") || !reader.still_runs();
    auto seen = reader.traces(told);
    if (!seen.ok()) return fail(seen.error());
    const std::vector<std::string>& known = seen.value().services();
    if (!wish.service.empty() &&
        std::find(known.begin(), known.end(), wish.service) == known.end()) {
      return fail(no_such_service(wish.service, seen.value()));
    }
    print_requests(seen.value(), wish, &told);
    if (is_last) return kExitGood;
    const timespec pause = {0, kLookNs};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace bedplate
