// The commands of the multi-call program. Each prints, and returns the exit code: 0 good, 1 boot or
// run failure, 2 usage or configuration.
#pragma once

#include <string>
#include <vector>

#include "platform/result.h"

namespace bedplate {

inline constexpr int kExitGood = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// The words after the command, taken apart.
struct Arguments {
  bool json = false;
  std::string directory = "/run/bedplate";
  std::vector<std::string> operands;
};

struct Command {
  const char* name;
  const char* operands;     // as the usage line shows them
  size_t operand_count_min;
  size_t operand_count_max;
  bool takes_json;
  bool takes_directory;
  const char* summary;      // one line
  const char* help;         // what --help says below the usage line
  int (*run)(const Arguments& arguments);
};

int run_command(const Arguments& arguments);
int plan_command(const Arguments& arguments);
int check_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int stats_command(const Arguments& arguments);

// Prints `error` and returns the exit code that goes with it.
int fail(const Error& error);

}  // namespace bedplate
