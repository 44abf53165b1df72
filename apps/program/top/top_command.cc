// `top`: shows what appliances are doing, from their counters alone. It costs the appliances
// nothing.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>

#include "apps/program/asked_line.h"
#include "apps/program/commands.h"
#include "apps/program/counters/alerts.h"
#include "apps/program/top/top_json.h"
#include "apps/program/top/top_screen.h"
#include "apps/program/top/top_terminal.h"
#include "apps/program/top/top_text.h"
#include "apps/program/top/top_watch.h"
#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr double kSecondsMin = 0.1;
constexpr double kSecondsMax = 3600;
// The longest wait for a serial line; no key is read meanwhile.
constexpr uint64_t kLineSilenceNs = 3 * kNsPerSecond;

std::vector<TopSection> all_sections(const TopAppliance& appliance) {
  std::vector<TopSection> sections = top_sections(appliance.changes());
  if (auto alerts = alerts_section(*appliance.now)) sections.insert(sections.begin(), *alerts);
  return sections;
}

// Prints one JSON object for all appliances, in one line if more may follow.
void print_as_json(const TopWatch& watch, bool is_once) {
  JsonValue list = JsonValue::array();
  for (const TopAppliance& appliance : watch.appliances()) list.push_back(top_json(appliance));
  JsonValue json = JsonValue::object();
  json["appliances"] = std::move(list);
  print_json(json, is_once ? 2 : -1);
}

void print_as_text(const TopWatch& watch) {
  for (const TopAppliance& appliance : watch.appliances()) {
    if (!appliance.now) continue;
    std::printf("%s\n", headline(appliance).c_str());
    for (const TopSection& section : all_sections(appliance)) {
      for (const std::string& line : section_lines(section, {}).lines) {
        std::printf("%s\n", line.c_str());
      }
    }
  }
}

std::vector<TopView> views_of(const TopWatch& watch) {
  std::vector<TopView> views;
  for (const TopAppliance& appliance : watch.appliances()) {
    char text[1024];
    if (!appliance.now) {
      views.push_back(
          {appliance.path, "", format_error(appliance.error, text, sizeof text), {}, {}});
      continue;
    }
    views.push_back({appliance.path,
                     std::string(appliance.now->appliance()),
                     headline(appliance),
                     top_sections(appliance.changes()),
                     {}});
    for (const SeenAlert& alert : alerts_of(*appliance.now)) {
      views.back().alerts.push_back(alert.text());
    }
  }
  return views;
}

// Runs until the user ends it: appliances may end and start meanwhile.
int run_screen(TopWatch* watch, double seconds) {
  TopTerminal terminal;
  auto opened = terminal.open();
  if (!opened.ok()) return fail(opened.error());
  const auto interval_ns = static_cast<uint64_t>(seconds * static_cast<double>(kNsPerSecond));
  TopScreen screen;
  screen.show(views_of(*watch), monotonic_ns());
  uint64_t next_ns = monotonic_ns() + interval_ns;
  while (true) {
    const TopTerminal::Size size = terminal.size();
    terminal.draw(screen.picture(size.columns, size.rows));
    const TopTerminal::Input input = terminal.wait(next_ns);
    if (input.event == TopTerminal::Event::kEnd) return kExitGood;
    if (input.event == TopTerminal::Event::kKey && !screen.press(input.key)) return kExitGood;
    if (input.event != TopTerminal::Event::kTime) continue;
    next_ns = monotonic_ns() + interval_ns;
    const auto looked = watch->look();
    if (looked.ok()) {
      screen.show(views_of(*watch), monotonic_ns());
    } else {
      char text[1024];
      screen.show_error(format_error(looked.error(), text, sizeof text));
    }
  }
}

// Prints the errors of appliances that could not be read. Returns the exit code.
int tell_errors(const TopWatch& watch) {
  int code = kExitGood;
  for (const TopAppliance& appliance : watch.appliances()) {
    if (!appliance.now) code = fail(appliance.error);
  }
  return code;
}

// nullptr: the counters files are on this machine.
std::unique_ptr<RemoteCounters> remote_counters(const Arguments& arguments) {
  const char* option = asked_line_option(arguments);
  if (option == nullptr) return nullptr;
  const auto open = [arguments]() -> Result<std::unique_ptr<ControlChannel>> {
    BP_TRY_ASSIGN(auto client, open_asked_line(arguments, {.silence_ns = kLineSilenceNs}));
    return {std::make_unique<ControlClient>(std::move(client))};
  };
  return std::make_unique<RemoteCounters>(arguments.value(option), open);
}

void sleep_seconds(double seconds) {
  BP_ASSERT(seconds >= 0);  // else nanosleep() fails
  timespec time = {};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  while (nanosleep(&time, &time) != 0) {
  }
}

}  // namespace

int top_command(const Arguments& arguments) {
  const std::string interval = arguments.value("--interval", "1");
  char* end = nullptr;
  const double seconds = std::strtod(interval.c_str(), &end);
  if (*end != '\0' || !(seconds >= kSecondsMin && seconds <= kSecondsMax)) {
    return usage_failure("--interval takes 0.1 to 3600 seconds, not", interval, "top");
  }
  const bool is_once = arguments.has("--once");
  int exit_code = kExitGood;
  if (!check_asked_line(arguments, "top", &exit_code)) return exit_code;
  if (asked_line_option(arguments) != nullptr && !arguments.operands.empty()) {
    return usage_failure("a line or socket belongs to one appliance: leave out",
                         arguments.operands[0], "top");
  }
  TopWatch watch({.file = arguments.value("--from"),
                  .directory = arguments.directory(),
                  .name = arguments.operands.empty() ? "" : arguments.operands[0],
                  .remote = remote_counters(arguments)});
  auto looked = watch.look();
  if (!looked.ok()) return fail(looked.error());
  if (!is_once && !arguments.has("--json") && TopTerminal::is_usable()) {
    return run_screen(&watch, seconds);
  }
  int code = kExitGood;
  do {
    // A crashed appliance does not change any more, so there is nothing to wait for.
    if (watch.is_any_running()) {
      sleep_seconds(seconds);
      looked = watch.look();
      if (!looked.ok()) return is_once ? fail(looked.error()) : kExitGood;  // all have ended
    }
    if (arguments.has("--json")) {
      print_as_json(watch, is_once);
    } else {
      print_as_text(watch);
    }
    std::fflush(stdout);
    code = tell_errors(watch);
  } while (!is_once && watch.is_any_running());
  return code;
}

}  // namespace bedplate
