// The commands of each program, in the order of its help.
#include <algorithm>
#include <iterator>

#include "apps/program/commands.h"
#include "apps/services/control_methods.h"

namespace bedplate {
namespace {

constexpr CommandOption kJson = {"--json", "", "print JSON"};
constexpr CommandOption kJsonOnly[] = {kJson};
constexpr CommandOption kDoctorOptions[] = {
    {"--for", "CONFIG", "check the machine for this configuration"},
    {"--fix", "", "fix what can be fixed; ask before changes that outlast a boot"},
    {"--yes", "", "with --fix: do not ask"},
    {"--directory", "DIR", "where to look for appliances (default /run/PROGRAM)"},
    kJson};
constexpr CommandOption kStatsOptions[] = {
    {"--directory", "DIR", "its runtime directory (default /run/PROGRAM)"},
    {"--from", "FILE", "instead: read this counters file, wherever it came from"},
    {"--watch", "", "print once a second what has changed, until the appliance ends"},
    {"--describe", "", "with --json: print the kind, unit and help of each counter, too"},
    kJson};
constexpr CommandOption kTopOptions[] = {
    {"--once", "", "read twice, print once, and end"},
    {"--interval", "SECONDS", "the time between two reads (default 1)"},
    {"--directory", "DIR", "the runtime directory (default /run/PROGRAM)"},
    {"--from", "FILE", "instead: read this counters file, wherever it came from"},
    {"--socket", "PATH", "instead: ask over this control socket, as that of an image"},
    {"--serial", "DEVICE", "instead: ask over this serial line"},
    {"--baud", "N", "with --serial: its speed (default 115200)"},
    kJson};
constexpr CommandOption kTraceOptions[] = {
    {"--service", "NAME", "print only requests of this service"},
    {"--slower-than", "TIME", "print only slower requests: 500us, 2ms, 1s (default 0)"},
    {"--follow", "", "also print requests as they end, until the appliance ends"},
    {"--directory", "DIR", "its runtime directory (default /run/PROGRAM)"},
    {"--from", "FILE", "instead: read this counters file, wherever it came from"},
    {"--json", "", "print JSON, one request a line"}};
constexpr CommandOption kCountersOptions[] = {
    {"--markdown", "", "print the rows of the tables in docs/counters.md"}, kJson};
constexpr CommandOption kKeysOptions[] = {
    {"--markdown", "", "print the rows of the table in docs/configuration.md"},
    {"--man", "", "print the manual page PROGRAM.toml(5)"},
    kJson};
constexpr CommandOption kPlanOptions[] = {
    {"--explain", "", "instead: print which keys could be smaller, from peaks of use"},
    {"--from", "FILE", "with --explain: read this counters file, wherever it came from"},
    {"--fifo", "LAYOUT", "instead of CONFIG: print what a group needs; lazy or mesh"},
    {"--peers", "N", "the number of members; required"},
    {"--entries", "N", "the entries of each FIFO or lane (default 128)"},
    {"--eager", "BYTES", "the longest message that is copied (default 4096)"},
    {"--eager-count", "N", "copied messages of each member at once (default 4; mesh: 1)"},
    {"--boxes", "N", "lazy: the number of fast boxes (default: 5 for each member)"},
    {"--box-bytes", "BYTES", "lazy: the size of each fast box (default 4096)"},
    {"--loans", "N", "the loans of each member at once (default 128; mesh: 64)"},
    {"--threads", "", "mesh: for members with several threads that send"},
    {"--line-bytes", "BYTES", "the size of a cache line: 64 or 128 (default 64)"},
    kJson};

constexpr CommandOption kCtlOptions[] = {
    {"--list", "", "print the methods that appliances of this program have"},
    {"--markdown", "", "with --list: print the table in docs/control.md"},
    {"--name", "NAME", "the appliance's name (default: the only one there)"},
    {"--directory", "DIR", "its runtime directory (default /run/PROGRAM)"},
    {"--serial", "DEVICE", "instead: ask over this serial line, such as /dev/ttyUSB0"},
    {"--baud", "N", "with --serial: its speed (default 115200)"},
    {"--socket", "PATH", "instead: ask over this Unix socket, as that of a guest's line"},
    {"--json", "", "print the answer in one line, as received"}};
constexpr CommandOption kPerfOptions[] = {
    {"--latency", "", "measure each operation: percentiles (the default)"},
    {"--bandwidth", "", "measure many at once: bytes and operations a second"},
    {"--both", "", "with --bandwidth: measure both directions at once"},
    {"--size", "LIST", "the sizes that are sent, put or got (8,64,512,4K,64K,1M)"},
    {"-n", "COUNT", "the count of each size (1000; --bandwidth: 5000; register: 200)"},
    {"-d", "SECONDS", "instead of -n: the time for each size"},
    {"--events", "", "both sides sleep until something arrives; otherwise they poll"},
    {"--device", "NAME", "the RDMA device, such as \"rxe0\" (default: the first usable one)"},
    {"--port", "N", "its port (default: the first that is up)"},
    kJson};

constexpr Command kCommands[] = {
    {"run",
     "CONFIG",
     1,
     1,
     {},
     "boot the appliance and serve",
     "Boots in order: plan, preflight, reserve, register, services, seal. Prints the line\n"
     "`PROGRAM: ready` on standard output when it serves; the log goes to standard error.\n"
     "SIGTERM, SIGINT or SIGHUP finishes what clients have begun and exits 0.\n",
     &run_command},
    {"plan", "[CONFIG]", 0, 1, kPlanOptions, "print every byte of the pool with its owner",
     "Allocates nothing and needs no rights. `run` allocates exactly what it prints.\n"
     "With --explain: how much of each key the appliance of CONFIG has used at most, which keys\n"
     "could be smaller and what that would save and risk, and which were too small.\n"
     "With --fifo instead of a configuration: the memory that the FIFOs of a group need:\n"
     "  PROGRAM plan --fifo mesh --peers 1024 --entries 16 --eager 4096\n\n",
     &plan_command},
    {"check", "CONFIG", 1, 1, kJsonOnly, "print all problems, start nothing",
     "Reads the configuration and prints every problem in it, with line and column. If there is\n"
     "none, it plans the pool and checks that this machine has what it needs: hugepages, limits,\n"
     "cores, ports. It prints all that is missing, each with its cure.\n",
     &check_command},
    {"keys", "[TABLE]", 0, 1, kKeysOptions, "print the keys of a configuration",
     "Prints each key with its type, its range, its default and its effect. With TABLE, prints\n"
     "only the keys of this table and of the tables in it: `PROGRAM keys shard`.\n",
     &keys_command},
    {"counters", "[CONFIG]", 0, 1, kCountersOptions, "print the counters that there are",
     "Prints each counter with its kind, its unit, and what it counts: those of the runtime or,\n"
     "with a configuration, those of its services.\n",
     &counters_command},
    {"doctor", "", 0, 0, kDoctorOptions, "print what this machine can do",
     "Lists page sizes, limits, cores and kernel features that Bedplate uses: each is good, or a\n"
     "warning (something is lost), or a fault (nothing starts), with its cure. With --for, also\n"
     "lists what `check` finds missing, and the cores of the shards. A fault exits 1.\n"
     "For each appliance that runs here, lists what needs a look, as `top` does; for each that\n"
     "has crashed, the reason and the time.\n"
     "--fix reserves hugepages (with --for), and sets the governor, sleep states and other things\n"
     "until the next boot. After asking, it makes what it can permanent in\n"
     "/etc/sysctl.d/90-PROGRAM.conf; it prints the line for GRUB. Then it checks the machine\n"
     "again.\n",
     &doctor_command},
    {"stats", "[NAME]", 0, 1, kStatsOptions, "print the counters of a running appliance",
     "Reads the counters file NAME.stats (without NAME, the only one there) and audits the maps\n"
     "of the running process. Costs the appliance nothing. The file describes itself: it may be\n"
     "of another program, or of another build. After a crash, prints the record of it, too.\n",
     &stats_command},
    {"top", "[NAME]", 0, 1, kTopOptions, "show what appliances are doing",
     "Reads the counters file NAME.stats (without NAME, all that are there) repeatedly, until the\n"
     "appliances end, and shows what each part did in between: shares of the time, rates,\n"
     "percentiles, and how full memory is. Costs the appliances nothing. On a terminal the arrows\n"
     "choose a value, s sorts, / filters, space freezes, q ends.\n"
     "\"12/s\" is a rate, \"12%\" a share of the time, p99 and the like are of the interval; a\n"
     "number alone is a level, or a total that did not change.\n"
     "With --socket or --serial it asks [control] for the counters that it cannot read here.\n",
     &top_command},
    {"trace", "[NAME]", 0, 1, kTraceOptions, "print the last requests and where their time went",
     "Reads the last requests of each shard from the counters file NAME.stats (without NAME, the\n"
     "only one there), also after a crash: what each was, how long it took, when it passed each\n"
     "station, and between which stations most of the time went. A request is shown once it has\n"
     "ended. Costs the appliance nothing.\n"
     "  PROGRAM trace --slower-than 2ms\n"
     "docs/trace.md says what the stations of each service mean.\n",
     &trace_command},
    {"ctl", "[METHOD [KEY=VALUE...]]", 0, 1 + kControlParametersMax, kCtlOptions,
     "send a request to a running appliance",
     "Sends a request to the control socket NAME.control, which appliances with [control] have,\n"
     "or over a line that an appliance elsewhere has as [control] serial, and prints the answer.\n"
     "`PROGRAM ctl methods` lists the methods of a running appliance, also of another program.\n"
     "docs/control.md says more.\n",
     &ctl_command},
    {"perf", "WHAT [ADDRESS]", 1, 2, kPerfOptions, "measure messages, puts and gets",
     "WHAT: serve, send, put, get or register. One side serves, the other measures what it sends,\n"
     "puts or gets there; tcp: uses verbs, unix: uses shared memory.\n"
     "  PROGRAM perf serve tcp:10.0.0.1:7471\n"
     "  PROGRAM perf put --bandwidth --size 64K -d 10 tcp:10.0.0.1:7471\n"
     "`perf register` measures the cost of registering memory for each message, or of a cache of\n"
     "registrations, on this device, compared with the pool. docs/perf.md says more.\n",
     &perf_command},
};

static_assert(std::all_of(std::begin(kCommands), std::end(kCommands), [](const Command& command) {
  return command.run != nullptr && command.operand_count_min <= command.operand_count_max;
}));

}  // namespace

std::span<const Command> commands() noexcept { return kCommands; }

}  // namespace bedplate
