// Parses the command line; each command has a file of its own.
#include "apps/program/program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "alloc/boot_growth.h"
#include "apps/c_interface/bedplate_service.h"
#include "apps/control/control_service.h"
#include "apps/http/http_service.h"
#include "apps/program/commands.h"
#include "apps/program/init_part.h"
#include "platform/build_id.h"
#include "platform/failed_calls.h"
#include "platform/log.h"

extern "C" const uint64_t bedplate_has_preflight;
const uint64_t bedplate_has_preflight = 1;

namespace bedplate {
namespace {

constexpr CommandOption kJson = {"--json", "", "print JSON"};
constexpr CommandOption kJsonOnly[] = {kJson};
constexpr CommandOption kDoctorOptions[] = {
    {"--for", "CONFIG", "judge the machine for this configuration"},
    {"--fix", "", "do what can be done; ask before it outlasts a boot"},
    {"--yes", "", "with --fix: do not ask"},
    {"--directory", "DIR", "of appliances that run here (default /run/bedplate)"},
    kJson};
constexpr CommandOption kStatsOptions[] = {
    {"--directory", "DIR", "its runtime directory (default /run/bedplate)"},
    {"--from", "FILE", "instead: this counters file, wherever it came from"},
    {"--watch", "", "once a second what has changed, until the appliance ends"},
    {"--describe", "", "with --json: each counter with its kind, unit and help"},
    kJson};
constexpr CommandOption kTopOptions[] = {
    {"--once", "", "look twice, print once, and end"},
    {"--interval", "SECONDS", "between two looks (default 1)"},
    {"--directory", "DIR", "the runtime directory (default /run/bedplate)"},
    {"--from", "FILE", "instead: this counters file, wherever it came from"},
    {"--socket", "PATH", "instead: what this control socket answers, as that of an image"},
    {"--serial", "DEVICE", "instead: what is answered over this serial line"},
    {"--baud", "N", "with --serial: its speed (default 115200)"},
    kJson};
constexpr CommandOption kTraceOptions[] = {
    {"--service", "NAME", "of this service alone"},
    {"--slower-than", "TIME", "those that took longer: 500us, 2ms, 1s (default 0)"},
    {"--follow", "", "and those that end from now on, until the appliance ends"},
    {"--directory", "DIR", "its runtime directory (default /run/bedplate)"},
    {"--from", "FILE", "instead: of this counters file, wherever it came from"},
    {"--json", "", "print JSON, a request a line"}};
constexpr CommandOption kCountersOptions[] = {
    {"--markdown", "", "print the rows of the tables in docs/counters.md"}, kJson};
constexpr CommandOption kKeysOptions[] = {
    {"--markdown", "", "print the rows of the table in docs/configuration.md"}, kJson};
constexpr CommandOption kPlanOptions[] = {
    {"--explain", "", "instead: which keys could be smaller, by the peaks of a run"},
    {"--from", "FILE", "with --explain: of this counters file, not of what runs now"},
    {"--fifo", "LAYOUT", "instead of CONFIG: what would a group take? lazy or mesh"},
    {"--peers", "N", "its members; required"},
    {"--entries", "N", "of each FIFO or lane (default 128)"},
    {"--eager", "BYTES", "the longest message that is copied (default 4096)"},
    {"--eager-count", "N", "of these, for each member (default 4; mesh: 1)"},
    {"--boxes", "N", "lazy: fast boxes (default: 5 for each member)"},
    {"--box-bytes", "BYTES", "lazy: of each (default 4096)"},
    {"--loans", "N", "of each member at once (default 128; mesh: 64)"},
    {"--threads", "", "mesh: for members with several threads that send"},
    {"--line-bytes", "BYTES", "of a cache line: 64 or 128 (default 64)"},
    kJson};

constexpr CommandOption kCtlOptions[] = {
    {"--list", "", "print the methods that appliances of this program have"},
    {"--markdown", "", "with --list: as the tables in docs/control.md"},
    {"--name", "NAME", "of the appliance (default: the only one there)"},
    {"--directory", "DIR", "its runtime directory (default /run/bedplate)"},
    {"--serial", "DEVICE", "instead: over this serial line, /dev/ttyUSB0 say"},
    {"--baud", "N", "with --serial: its speed (default 115200)"},
    {"--socket", "PATH", "instead: over this Unix socket, of a guest's line say"},
    {"--json", "", "print the answer in one line, as it came"}};
constexpr CommandOption kPerfOptions[] = {
    {"--latency", "", "of each operation: percentiles (the default)"},
    {"--bandwidth", "", "many at once: bytes and operations for each second"},
    {"--both", "", "bandwidth: the other side at the same time, too"},
    {"--size", "LIST", "of what is sent, put or got (8,64,512,4K,64K,1M)"},
    {"-n", "COUNT", "so many of each size (1000; --bandwidth: 5000; register: 200)"},
    {"-d", "SECONDS", "as many as there are in this time, of each size"},
    {"--events", "", "both sides sleep until something comes; otherwise they poll"},
    {"--device", "NAME", "of verbs: \"rxe0\"; otherwise the first that can be used"},
    {"--port", "N", "of it; otherwise the first that is up"},
    kJson};

constexpr Command kCommands[] = {
    {"run",
     "CONFIG",
     1,
     1,
     {},
     "boot the appliance and serve",
     "Boots in order: plan, preflight, reserve, register, services, seal. Prints the line\n"
     "`bedplate: ready` on standard output when it serves; the log goes to standard error.\n"
     "SIGTERM, SIGINT or SIGHUP finishes what clients have begun and exits 0.\n",
     &run_command},
    {"plan", "[CONFIG]", 0, 1, kPlanOptions, "print every byte of the pool with its owner",
     "Takes nothing and needs no rights. What it prints is what `run` takes, to the byte.\n"
     "With --explain: what the appliance of CONFIG has used of its keys at most, which of them\n"
     "could be smaller and what that would save and risk, and which were too small.\n"
     "Without a configuration it answers what FIFOs would take:\n"
     "  bedplate plan --fifo mesh --peers 1024 --entries 16 --eager 4096\n\n",
     &plan_command},
    {"check", "CONFIG", 1, 1, kJsonOnly, "print everything that is wrong, start nothing",
     "Reads the configuration and prints every problem of it, with line and column. If there is\n"
     "none: plans the pool, and looks whether this machine has what it takes: hugepages, limits,\n"
     "cores, ports. Prints all that is missing, each with the cure.\n",
     &check_command},
    {"keys", "[TABLE]", 0, 1, kKeysOptions, "print what a configuration may say",
     "Each key with its type, its default, what it may be, and what it does; of TABLE alone, and\n"
     "the tables in it, where one is named: `bedplate keys shard`.\n",
     &keys_command},
    {"counters", "[CONFIG]", 0, 1, kCountersOptions, "print what is counted",
     "Each counter with its kind, its unit, and what it counts: those of the runtime or, with a\n"
     "configuration, those of the services that it has.\n",
     &counters_command},
    {"doctor", "", 0, 0, kDoctorOptions, "say what this machine can do",
     "Lists page sizes, limits, cores and kernel features that Bedplate uses: each is good, or a\n"
     "warning (something is lost), or a fault (nothing starts), with its cure. With --for: what\n"
     "`check` finds missing, and the cores of its shards. A fault exits 1.\n"
     "Of each appliance that runs here: what of it needs a look, as `top` has it.\n"
     "--fix reserves hugepages (with --for), and sets the governor, sleep states and what else\n"
     "lasts until the next boot. What makes that last it writes into\n"
     "/etc/sysctl.d/90-bedplate.conf, if that is agreed to; it prints the line for GRUB. Then\n"
     "the machine is judged again.\n",
     &doctor_command},
    {"stats", "[NAME]", 0, 1, kStatsOptions, "print the counters of a running appliance",
     "Reads the counters file NAME.stats (the only one there, when NAME is left out) and audits\n"
     "the maps of the running process. Costs the appliance nothing. The file describes itself: it\n"
     "may be of another program, or of another build.\n",
     &stats_command},
    {"top", "[NAME]", 0, 1, kTopOptions, "show what appliances are doing",
     "Reads the counters file NAME.stats (all that are there, when NAME is left out) again and\n"
     "again, until the appliances end, and shows what each part did in between: shares of the\n"
     "time, rates, percentiles, and how full memory is. Costs the appliances nothing. On a\n"
     "terminal the arrows choose a value, s sorts, / filters, space freezes, q ends.\n"
     "\"12/s\" is a rate, \"12%\" a share of the time, p99 and the like are of the interval; a\n"
     "number alone is a level, or a total that did not change.\n"
     "With --socket or --serial it asks over [control] for what it cannot read here.\n",
     &top_command},
    {"trace", "[NAME]", 0, 1, kTraceOptions, "print the last requests and where their time went",
     "Reads the last requests of each shard from the counters file NAME.stats (the only one\n"
     "there, when NAME is left out), also after a crash: what each was, how long it took, at\n"
     "which time it passed each station, and on the way to which it lost most of it. A request\n"
     "is seen once it has ended. Costs the appliance nothing.\n"
     "  bedplate trace --slower-than 2ms\n"
     "docs/trace.md says what the stations of each service mean.\n",
     &trace_command},
    {"ctl", "[METHOD [KEY=VALUE...]]", 0, 1 + kControlParametersMax, kCtlOptions,
     "ask or tell a running appliance something",
     "Sends a request to the control socket NAME.control, which appliances with [control] have,\n"
     "or over the line that an appliance elsewhere has as [control] serial, and prints what is\n"
     "answered. `bedplate ctl methods` lists what a running one can be asked,\n"
     "of whatever program it is. docs/control.md says more.\n",
     &ctl_command},
    {"perf", "WHAT [ADDRESS]", 1, 2, kPerfOptions, "measure messages, puts and gets",
     "WHAT: serve, send, put, get or register. One side serves, the other measures what it sends\n"
     "there, puts or gets; tcp: is verbs, unix: is shared memory.\n"
     "  bedplate perf serve tcp:10.0.0.1:7471\n"
     "  bedplate perf put --bandwidth --size 64K -d 10 tcp:10.0.0.1:7471\n"
     "`perf register` says what it costs to register memory for each message, or to keep a cache\n"
     "of registrations, on the device at hand, beside the pool. docs/perf.md says more of it.\n",
     &perf_command},
};

static_assert(std::all_of(std::begin(kCommands), std::end(kCommands), [](const Command& command) {
  return command.run != nullptr && command.operand_count_min <= command.operand_count_max;
}));

void print_usage(FILE* out) {
  std::fprintf(out, "usage: bedplate COMMAND [OPTIONS]\n\n");
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-8s %-14s %s\n", command.name, command.operands, command.summary);
  }
  std::fprintf(out,
               "\n`bedplate COMMAND --help` says more, `bedplate --version` which one this is.\n"
               "Exit codes: 0 good, 1 boot or run failure, 2 usage or configuration.\n");
}

void print_help(const Command& command) {
  std::printf("usage: bedplate %s%s%s%s\n\n%s: %s.\n%s", command.name,
              command.operands[0] ? " " : "", command.operands,
              command.options.empty() ? "" : " [OPTION...]", command.name, command.summary,
              command.help);
  for (const CommandOption& option : command.options) {
    std::printf("  %-20s %s\n", (std::string(option.name) + " " + option.value).c_str(),
                option.help);
  }
}

int run_parsed(const Command& command, std::span<Service* const> services, int count,
               char** words) {
  Arguments arguments;
  arguments.services = services;
  for (int i = 0; i < count; ++i) {
    const std::string word(words[i]);
    if (word == "--help" || word == "-h") {
      print_help(command);
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
    return usage_failure("too many words, beginning with",
                         arguments.operands[command.operand_count_max], command.name);
  }
  return command.run(arguments);
}

int dispatch(int count, char** words, std::span<Service* const> services) {
  if (count < 2) {
    print_usage(stderr);
    return kExitUsage;
  }
  if (std::strcmp(words[1], "--help") == 0 || std::strcmp(words[1], "-h") == 0) {
    print_usage(stdout);
    return kExitGood;
  }
  if (std::strcmp(words[1], "--version") == 0) {
    std::printf("bedplate %d.%d.%d (build %s)\n", BP_VERSION_MAJOR, BP_VERSION_MINOR,
                BP_VERSION_PATCH, build_id().text);
    return kExitGood;
  }
  for (const Command& command : kCommands) {
    if (std::strcmp(words[1], command.name) == 0) {
      return run_parsed(command, services, count - 2, words + 2);
    }
  }
  return usage_failure("unknown command", words[1], "");
}

Error no_init() {
  return error_while("starting as the first process of a machine")
      .set_answer("this program was linked without what brings up a machine")
      .set_cure("link it with bedplate-init (pkg-config; CMake: Bedplate::init)");
}

}  // namespace

int usage_failure(const std::string& what, const std::string& subject, const char* command) {
  return fail(configuration_error_while("reading the command line")
                  .set_answer("%s%s%s", what.c_str(), subject.empty() ? "" : " ", subject.c_str())
                  .set_cure("see: bedplate %s%s--help", command, command[0] ? " " : ""));
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

int run_program(int count, char** words, std::span<Service* const> given) {
  keep_alive_on(SIGXFSZ);  // a file size limit may cut a command's output
  let_boot_heap_grow();
  const int code = run_words(count, words, given);
  end_boot_growth();
  return code;
}

}  // namespace bedplate
