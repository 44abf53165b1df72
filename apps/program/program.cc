// Parses the command line; each command has a file of its own, and command_table.cc lists them.
#include "apps/program/program.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <unistd.h>

#include "alloc/boot_growth.h"
#include "apps/c_interface/bedplate_version.h"
#include "apps/control/control_service.h"
#include "apps/http/http_service.h"
#include "apps/program/commands.h"
#include "apps/program/help_text.h"
#include "apps/program/init_part.h"
#include "apps/program/interface_check.h"
#include "apps/program/manual.h"
#include "apps/program/unit_file.h"
#include "platform/failed_calls.h"
#include "platform/log.h"
#include "platform/product.h"

extern "C" const uint64_t bedplate_has_preflight;
const uint64_t bedplate_has_preflight = 1;

namespace bedplate {
namespace {

int run_parsed(const Command& command, std::span<Service* const> services, int count,
               char** words) {
  Arguments arguments;
  arguments.services = services;
  for (int i = 0; i < count; ++i) {
    const std::string word(words[i]);
    if (word == "--help" || word == "-h") {
      std::fputs(command_help(command).c_str(), stdout);
      return kExitGood;
    }
    const auto option =
        std::find_if(command.options.begin(), command.options.end(),
                     [&word](const CommandOption& known) { return word == known.name; });
    if (option != command.options.end()) {
      const bool takes_value = option->value[0] != '\0';
      if (takes_value && ++i == count) {
        return usage_failure(word + " needs a value", "", command.name);
      }
      arguments.options.push_back({word, takes_value ? words[i] : ""});
    } else if (word.starts_with('-')) {
      return usage_failure("unknown option", word, command.name);
    } else {
      arguments.operands.push_back(word);
    }
  }
  if (arguments.operands.size() < command.operand_count_min) {
    return usage_failure("missing", command.operands, command.name);
  }
  if (arguments.operands.size() > command.operand_count_max) {
    return usage_failure("too many arguments, beginning with",
                         arguments.operands[command.operand_count_max], command.name);
  }
  return command.run(arguments);
}

// `path` of the installed program; nullptr: it is this file.
int print_unit(const char* path) {
  char own_path[PATH_MAX];
  if (path == nullptr) {
    const ssize_t bytes = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    if (bytes < 0) return fail(error_from_errno("reading the link /proc/self/exe"));
    own_path[bytes] = '\0';
    path = own_path;
  }
  if (path[0] != '/') return usage_failure("--unit takes a path that begins with /, not", path, "");
  std::fputs(unit_file(path).c_str(), stdout);
  return kExitGood;
}

int dispatch(int count, char** words, std::span<Service* const> services) {
  if (count < 2) {
    std::fputs(program_help().c_str(), stderr);
    return kExitUsage;
  }
  if (std::strcmp(words[1], "--help") == 0 || std::strcmp(words[1], "-h") == 0) {
    std::fputs(program_help().c_str(), stdout);
    return kExitGood;
  }
  if (std::strcmp(words[1], "--version") == 0) {
    std::fputs(version_text().c_str(), stdout);
    return kExitGood;
  }
  if (std::strcmp(words[1], "--man") == 0) {
    std::fputs(program_manual().c_str(), stdout);
    return kExitGood;
  }
  if (std::strcmp(words[1], "--unit") == 0) return print_unit(count > 2 ? words[2] : nullptr);
  for (const Command& command : commands()) {
    if (std::strcmp(words[1], command.name) == 0) {
      return run_parsed(command, services, count - 2, words + 2);
    }
  }
  return usage_failure("unknown command", words[1], "");
}

Error no_init() {
  return error_while("starting as the first process of a machine")
      .set_answer("this program was linked without bedplate-init")
      .set_cure("link it with bedplate-init (pkg-config; CMake: Bedplate::init)");
}

}  // namespace

int usage_failure(const std::string& what, const std::string& subject, const char* command) {
  return fail(configuration_error_while("reading the command line")
                  .set_answer("%s%s%s", what.c_str(), subject.empty() ? "" : " ", subject.c_str())
                  .set_cure("see: %s %s%s--help", product().name, command, command[0] ? " " : ""));
}

int fail(const Error& error) {
  static_assert(static_cast<int>(ErrorKind::kSystem) == kExitFailure);
  static_assert(static_cast<int>(ErrorKind::kConfiguration) == kExitUsage);
  log_error(error);
  return static_cast<int>(error.kind);
}

int fail(const std::vector<Error>& errors) {
  int code = kExitGood;
  for (const Error& error : errors) code = std::max(code, fail(error));
  return code;
}

static int run_words(int count, char** words, std::span<Service* const> given) {
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string which = "service " + std::to_string(i + 1) + " of its list";
    const auto fits = check_interface(which.c_str(), given[i]->compiled_against());
    if (!fits.ok()) return fail(fits.error());
  }
  static HttpService http;
  static ControlService control(&plan_text);
  std::vector<Service*> services(given.begin(), given.end());
  services.push_back(&http);
  services.push_back(&control);
  const InitPart* init = init_part();
  if (init != nullptr && init->is_init(count, words)) return init->main(count, words, services);
  // Only the kernel starts a process 1 without arguments. It panics when this process ends, and the
  // error stays on the console above that.
  if (init == nullptr && count == 1 && getpid() == 1) return fail(no_init());
  return dispatch(count, words, services);
}

static Result<void> become(const ProgramOptions& options) {
  if (!is_product_name(options.product)) {
    return configuration_error_while("starting the program")
        .set_answer("\"%s\" is not a name of a product", options.product)
        .set_cure("this is a defect of the program: a name has 1 to 31 characters of a-z, 0-9 and "
                  "-, and begins with a letter");
  }
  const bool is_bedplate = std::strcmp(options.product, Product{}.name) == 0;
  set_product({.name = options.product,
               .version = is_bedplate ? kBedplateVersion : options.version,
               .summary = options.summary});
  return {};
}

int run_program(int count, char** words, std::span<Service* const> given,
                const ProgramOptions& options) {
  if (auto named = become(options); !named.ok()) return fail(named.error());
  keep_alive_on(SIGXFSZ);  // a file size limit may cut a command's output
  let_boot_heap_grow();
  const int code = run_words(count, words, given);
  end_boot_growth();
  return code;
}

}  // namespace bedplate
