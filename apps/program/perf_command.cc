// perf: measures messages, puts and gets between two hosts, or two processes.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "alloc/boot_growth.h"
#include "apps/program/commands.h"
#include "apps/perf/perf_client.h"
#include "apps/perf/perf_report.h"
#include "apps/perf/perf_server.h"
#include "apps/perf/perf_verbs.h"
#include "platform/assert.h"
#include "platform/text_words.h"
#include "platform/units.h"

namespace bedplate {
namespace {

volatile sig_atomic_t must_stop = 0;

Error bad_value(const char* option, const std::string& value, const char* answer,
                const char* cure) {
  return configuration_error_while("reading %s%s%s", option, value.empty() ? "" : " ",
                                   value.c_str())
      .set_answer("%s", answer)
      .set_cure("%s", cure);
}

// A number from 1 to `max`; `otherwise` if the option is missing.
Result<uint64_t> read_count(const Arguments& arguments, const char* option, uint64_t otherwise,
                            uint64_t max) {
  BP_ASSERT(max > 0 && otherwise <= max);
  if (!arguments.has(option)) return otherwise;
  const std::string text = arguments.value(option);
  uint64_t number = 0;
  if (!parse_number(text, &number) || number == 0 || number > max) {
    char cure[64];
    std::snprintf(cure, sizeof cure, "write a number from 1 to %llu",
                  static_cast<unsigned long long>(max));
    return bad_value(option, text, "this is not such a number", cure);
  }
  return number;
}

// "8,64,4K,1M", also with KiB and MiB.
Result<std::vector<uint64_t>> read_sizes(const std::string& text) {
  std::vector<uint64_t> sizes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    if (word.ends_with('K') || word.ends_with('M')) word += "iB";
    const auto bytes = parse_bytes(word);
    if (!bytes || *bytes == 0) {
      return bad_value("--size", text, "this is not a list of sizes", "write sizes: 8,64,4K,1M");
    }
    sizes.push_back(*bytes);
    begin = end + 1;
  }
  return sizes;
}

// Refuses options that belong to another kind of measurement.
Result<void> check_options(const Arguments& arguments, std::span<const char* const> known) {
  const std::string& what = arguments.operands[0];
  for (const Arguments::Option& option : arguments.options) {
    if (std::find(known.begin(), known.end(), option.name) != known.end()) continue;
    return bad_value(option.name.c_str(), option.value,
                     ("perf " + what + " has no such option").c_str(),
                     what == "serve" ? "give it to the side that measures" : "leave it out");
  }
  return {};
}

Result<PerfSideOptions> read_side(const Arguments& arguments) {
  PerfSideOptions options;
  options.device = arguments.value("--device");
  auto port = read_count(arguments, "--port", 0, 255);
  if (!port.ok()) return port.error();
  options.port = static_cast<uint8_t>(port.value());
  if (arguments.operands.size() > 1) options.address = arguments.operands[1];
  return options;
}

Result<PerfTask> read_task(const Arguments& arguments) {
  constexpr uint64_t kCountMax = 1'000'000'000;
  constexpr uint64_t kSecondsMax = 86400;
  PerfTask task;
  const std::string& operation = arguments.operands[0];
  task.operation = operation == "put"   ? PerfOperation::kPut
                   : operation == "get" ? PerfOperation::kGet
                                        : PerfOperation::kSend;
  if (arguments.has("--bandwidth")) task.measure = PerfMeasure::kBandwidth;
  if (arguments.has("--events")) task.mode = PerfMode::kEvents;
  task.is_both = arguments.has("--both");
  const bool is_latency = task.measure == PerfMeasure::kLatency;
  const auto contradict = [](const char* option, const char* answer, const char* cure) {
    return bad_value(option, "", answer, cure);
  };
  if (arguments.has("--latency") && !is_latency) {
    return contradict("--latency", "it cannot be combined with --bandwidth", "leave one out");
  }
  if (arguments.has("-d") && arguments.has("-n")) {
    return contradict("-d", "it cannot be combined with -n", "leave one out");
  }
  if (task.is_both && is_latency) {
    return contradict("--both", "latency is always measured in both directions",
                      "add --bandwidth, or leave it out");
  }
  if (task.mode == PerfMode::kEvents && is_latency && task.operation == PerfOperation::kPut) {
    return contradict("--events", "the target of a put gets no event: it polls its memory",
                      "leave it out");
  }
  auto seconds = read_count(arguments, "-d", 0, kSecondsMax);
  if (!seconds.ok()) return seconds.error();
  auto count = read_count(arguments, "-n", is_latency ? 1000 : 5000, kCountMax);
  if (!count.ok()) return count.error();
  task.duration_ns = seconds.value() * kNsPerSecond;
  task.count = task.duration_ns != 0 ? 0 : count.value();
  return task;
}

// The sizes of --size, or the default ones up to `bytes_max`.
Result<std::vector<uint64_t>> choose_sizes(const Arguments& arguments, const PerfTask& task,
                                           uint64_t bytes_max) {
  if (!arguments.has("--size")) {
    std::vector<uint64_t> sizes = {8, 64, 512, 4 * kKiB, 64 * kKiB, kMiB};
    std::erase_if(sizes, [&](uint64_t bytes) { return bytes > bytes_max; });
    return sizes;
  }
  auto sizes = read_sizes(arguments.value("--size"));
  if (!sizes.ok()) return sizes.error();
  for (const uint64_t bytes : sizes.value()) {
    if (bytes <= bytes_max) continue;
    return configuration_error_while("choosing what to %s", to_text(task.operation))
        .set_answer("%s are requested, but at most %s are possible", format_bytes(bytes).text,
                    format_bytes(bytes_max).text)
        .set_cure(task.operation == PerfOperation::kSend
                      ? "make --size smaller; longer data is put or lent"
                      : "make --size smaller");
  }
  return sizes.take();
}

Result<void> serve(const Arguments& arguments) {
  static constexpr const char* kOptions[] = {"--device", "--port"};
  BP_TRY(check_options(arguments, kOptions));
  auto options = read_side(arguments);
  if (!options.ok()) return options.error();
  options.value().is_server = true;
  struct sigaction action = {};
  action.sa_handler = [](int) { must_stop = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  auto side = PerfSide::open(options.value());
  if (!side.ok()) return side.error();
  std::printf("answering at %s\n", options.value().address.c_str());
  print_connection(side.value()->connection(), "");
  std::fflush(stdout);
  PerfServer(*side.value()).serve(must_stop);
  return {};
}

Result<void> measure(const Arguments& arguments) {
  auto task = read_task(arguments);
  if (!task.ok()) return task.error();
  if (arguments.has("--size")) {
    if (auto sizes = read_sizes(arguments.value("--size")); !sizes.ok()) return sizes.error();
  }
  auto options = read_side(arguments);
  if (!options.ok()) return options.error();
  auto side = PerfSide::open(options.value());
  if (!side.ok()) return side.error();
  PerfClient client(*side.value());
  PerfReport report = {task.value(),
                       options.value().address,
                       side.value()->connection(),
                       PerfPace().yields(task.value().mode),
                       {}};
  BP_TRY(client.connect(report.address));
  auto sizes = choose_sizes(arguments, report.task, client.bytes_max(report.task.operation));
  if (!sizes.ok()) return sizes.error();
  const bool is_table = !arguments.has("--json");
  if (is_table) {
    std::printf("%s %s, %s\n", to_text(report.task.operation), to_text(report.task.measure),
                report.address.c_str());
    print_connection(report.connection, mode_text(report.task.mode, report.yields));
    print_perf_heading(report.task);
  }
  for (const uint64_t bytes : sizes.value()) {
    auto result = client.run(report.task, bytes);
    if (!result.ok()) return result.error();
    if (is_table) print_perf_line(report.task, result.value());
    report.results.push_back(result.take());
  }
  if (!is_table) print_perf_json(report);
  return {};
}

Result<void> measure_registration(const Arguments& arguments) {
  static constexpr const char* kOptions[] = {"--device", "--port", "-n", "--size", "--json"};
  BP_TRY(check_options(arguments, kOptions));
  auto side = read_side(arguments);
  if (!side.ok()) return side.error();
  auto count = read_count(arguments, "-n", 200, 1'000'000);
  if (!count.ok()) return count.error();
  auto sizes = read_sizes(arguments.value("--size", "4K,16K,64K,256K,1M"));
  if (!sizes.ok()) return sizes.error();
  BP_TRY_ASSIGN(const auto verbs, perf_verbs_part());
  auto measured = verbs->measure_register_cost({.device = side.value().device,
                                                .port = side.value().port,
                                                .count = count.value(),
                                                .sizes = sizes.take()});
  if (!measured.ok()) return measured.error();
  arguments.has("--json") ? print_register_json(measured.value())
                          : print_register_table(measured.value());
  return {};
}

}  // namespace

int perf_command(const Arguments& arguments) {
  end_boot_growth();  // perf has threads of its own
  BP_ASSERT(!arguments.operands.empty());
  const std::string& what = arguments.operands[0];
  const bool registers = what == "register";
  const bool serves = what == "serve";
  if (!registers && !serves && what != "send" && what != "put" && what != "get") {
    return usage_failure("perf cannot measure", what, "perf");
  }
  if (registers != (arguments.operands.size() == 1)) {
    return usage_failure(registers ? "register takes no ADDRESS, but got" : "missing ADDRESS",
                         registers ? arguments.operands[1] : "", "perf");
  }
  const auto outcome = registers ? measure_registration(arguments)
                       : serves  ? serve(arguments)
                                 : measure(arguments);
  return outcome.ok() ? kExitGood : fail(outcome.error());
}

}  // namespace bedplate
