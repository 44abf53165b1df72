// The commands of a program. Each prints, and returns the exit code: 0 good, 1 boot or
// run failure, 2 usage or configuration.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/services/service.h"
#include "platform/product.h"
#include "platform/result.h"

namespace bedplate {

class CountersReader;
struct AppliancePlan;
struct Configuration;

inline constexpr int kExitGood = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// The words after the command, parsed.
struct Arguments {
  std::span<Service* const> services;  // the program's
  struct Option {
    std::string name;   // "--json"
    std::string value;  // empty: it takes no value
  };
  std::vector<Option> options;
  std::vector<std::string> operands;

  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
  // The last value given, or `otherwise`.
  std::string value(std::string_view name, const char* otherwise = "") const {
    const Option* option = find(name);
    return option == nullptr ? otherwise : option->value;
  }
  // The runtime directory: --directory, or the program's own.
  std::string directory() const {
    return has("--directory") ? value("--directory") : usual_runtime_directory();
  }
  const Option* find(std::string_view name) const noexcept {
    const Option* found = nullptr;
    for (const Option& option : options) found = option.name == name ? &option : found;
    return found;
  }
};

struct CommandOption {
  const char* name;
  const char* value;  // as --help names it; "": it takes no value
  const char* help;
};

struct Command {
  const char* name;
  const char* operands;  // as the usage line shows them
  size_t operand_count_min;
  size_t operand_count_max;
  std::span<const CommandOption> options;
  const char* summary;  // one line
  const char* help;     // the text of --help below the usage line
  int (*run)(const Arguments& arguments);
};

// All commands, in the order of the program's help.
std::span<const Command> commands() noexcept;

int run_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int answer_fifo_question(const Arguments& arguments);  // plan --fifo
int explain_plan(const Arguments& arguments);          // plan --explain
int check_command(const Arguments& arguments);
int keys_command(const Arguments& arguments);
int counters_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int stats_command(const Arguments& arguments);
int top_command(const Arguments& arguments);
int trace_command(const Arguments& arguments);
int perf_command(const Arguments& arguments);
int ctl_command(const Arguments& arguments);

// Opens the counters that the command line names: --from FILE, or those of an appliance in
// --directory. Errors: those of CountersReader.
Result<CountersReader> open_counters(const Arguments& arguments);

// The output of `plan --json`, in one line.
std::string plan_text(const AppliancePlan& plan, const Configuration& configuration);

// Prints that the command line is wrong, and returns the exit code. `what` and, unless empty,
// `subject` tell the problem; the cure is --help of `command` ("": of the program).
int usage_failure(const std::string& what, const std::string& subject, const char* command);

// Prints `error` or each of `errors`. Returns its exit code, or the highest of theirs.
int fail(const Error& error);
int fail(const std::vector<Error>& errors);

}  // namespace bedplate
