// bedplate: the multi-call program. This file takes the command line apart; each command has a
// file of its own.
#include <cstdio>
#include <cstring>
#include <string_view>

#include "apps/bedplate/commands.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constexpr Command kCommands[] = {
    {"run", "CONFIG", 1, 1, false, false, "boot the appliance and serve",
     "Boots in order: plan, preflight, reserve, register, services, seal. Prints the line\n"
     "`bedplate: ready` on standard output when it serves; the log goes to standard error.\n"
     "SIGTERM or SIGINT finishes what clients have begun and exits 0.\n",
     &run_command},
    {"plan", "CONFIG", 1, 1, true, false, "print every byte of the pool with its owner",
     "Takes nothing and needs no rights. What it prints is what `run` takes, to the byte.\n",
     &plan_command},
    {"check", "CONFIG", 1, 1, true, false, "print everything that is wrong, start nothing",
     "Reads the configuration, plans the pool, and looks whether this machine has what it takes:\n"
     "hugepages, limits, cores, ports. Prints all that is missing, each with the cure.\n",
     &check_command},
    {"doctor", "", 0, 0, true, false, "say what this machine can do",
     "Lists page sizes, limits, cores and kernel features that Bedplate uses, and what is lost\n"
     "where one is missing.\n",
     &doctor_command},
    {"stats", "[NAME]", 0, 1, true, true, "print the counters of a running appliance",
     "Reads the counters file NAME.stats (the only one there, when NAME is left out) and audits\n"
     "the maps of the running process. Costs the appliance nothing.\n"
     "  --directory DIR   its runtime directory (default /run/bedplate)\n",
     &stats_command},
};

void print_usage(FILE* out) {
  std::fprintf(out, "usage: bedplate COMMAND [OPTIONS]\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-7s %-7s %s\n", command.name, command.operands, command.summary);
  }
  std::fprintf(out,
               "\n`bedplate COMMAND --help` says more. Exit codes: 0 good, 1 boot or run failure,\n"
               "2 usage or configuration.\n");
}

void print_help(const Command& command) {
  std::printf("usage: bedplate %s%s%s%s%s\n\n%s: %s.\n%s%s", command.name,
              command.operands[0] ? " " : "", command.operands, command.takes_json ? " [--json]" : "",
              command.takes_directory ? " [--directory DIR]" : "", command.name, command.summary,
              command.help, command.takes_json ? "  --json            print JSON\n" : "");
}

int usage_failure(const char* what, const char* subject, const char* cure) {
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("reading the command line");
  error.set_answer("%s%s%s", what, subject[0] ? " " : "", subject);
  error.set_cure("see: bedplate %s--help", cure);
  return fail(error);
}

int run_parsed(const Command& command, int count, char** words) {
  char cure[32];
  std::snprintf(cure, sizeof cure, "%s ", command.name);
  Arguments arguments;
  for (int i = 0; i < count; ++i) {
    const std::string_view word(words[i]);
    if (word == "--help" || word == "-h") {
      print_help(command);
      return kExitGood;
    }
    if (word == "--json" && command.takes_json) {
      arguments.json = true;
    } else if (word == "--directory" && command.takes_directory) {
      if (++i == count) return usage_failure("--directory needs a value", "", cure);
      arguments.directory = words[i];
    } else if (word.starts_with('-')) {
      return usage_failure("unknown option", words[i], cure);
    } else {
      arguments.operands.emplace_back(word);
    }
  }
  if (arguments.operands.size() < command.operand_count_min) {
    return usage_failure("missing", command.operands, cure);
  }
  if (arguments.operands.size() > command.operand_count_max) {
    return usage_failure("too many words, beginning with",
                         arguments.operands[command.operand_count_max].c_str(), cure);
  }
  return command.run(arguments);
}

int dispatch(int count, char** words) {
  if (count < 2) {
    print_usage(stderr);
    return kExitUsage;
  }
  if (std::strcmp(words[1], "--help") == 0 || std::strcmp(words[1], "-h") == 0) {
    print_usage(stdout);
    return kExitGood;
  }
  for (const Command& command : kCommands) {
    if (std::strcmp(words[1], command.name) == 0) {
      return run_parsed(command, count - 2, words + 2);
    }
  }
  return usage_failure("unknown command", words[1], "");
}

}  // namespace

int fail(const Error& error) {
  log_error(error);
  return static_cast<int>(error.kind);
}

}  // namespace bedplate

int main(int count, char** words) { return bedplate::dispatch(count, words); }
