// The tables that every program's configuration may have: the name of each key, its values, the
// variable that gets them, and its meaning. The order is that of docs/configuration.md.
#include "apps/configuration/configuration.h"
#include "apps/configuration/configuration_checks.h"
#include "apps/configuration/configuration_part.h"
#include "apps/configuration/configuration_table.h"
#include "apps/counters/trace_snapshot.h"
#include "pinned_pool/layout.h"
#include "platform/product.h"
#include "platform/trace_ring.h"
#include "transport/messages/fast_box_datapath.h"

namespace bedplate {
namespace {

using Rule = ConfigurationKey::Rule;
using Type = ConfigurationKey::Type;

constexpr uint64_t kLimitUnitBytes = 64 * kKiB;  // the least that the heap charges an owner
// The most members of one process of [[process]]; a join names each of them.
constexpr uint64_t kProcessMembersMax = 64;
// Readers accept the rings of any appliance, with the tables beside them.
constexpr uint64_t kTraceRequestsMax = 65536;
static_assert(2 * kShardCountMax * kTraceRequestsMax * sizeof(TraceRecord) <=
              TraceSnapshot::kBytesMax);

constexpr Choice<Enforcement> kEnforcements[] = {{"kernel", Enforcement::kKernel},
                                                 {"seccomp", Enforcement::kSeccomp}};
constexpr Choice<HeapExpectation> kHeaps[] = {{"any", HeapExpectation::kAny},
                                              {"pool", HeapExpectation::kPool},
                                              {"ordinary", HeapExpectation::kOrdinary}};
constexpr Choice<SocketBackendChoice> kSockets[] = {
    {"io_uring-or-epoll", SocketBackendChoice::kIoUringOrEpoll},
    {"io_uring", SocketBackendChoice::kIoUring},
    {"epoll", SocketBackendChoice::kEpoll}};
constexpr Choice<GroupKind> kLayouts[] = {{"lazy", GroupKind::kLazy}, {"mesh", GroupKind::kMesh}};
constexpr Choice<JoinFailure> kJoinFailures[] = {{"continue", JoinFailure::kContinue},
                                                 {"stop", JoinFailure::kStop}};
constexpr Choice<SingleCopyKind> kSingleCopies[] = {{"xpmem", SingleCopyKind::kXpmem},
                                                    {"cma", SingleCopyKind::kCma},
                                                    {"knem", SingleCopyKind::kKnem}};

}  // namespace

static void describe(ConfigurationTable& table, ApplianceSettings& settings) {
  table.name("name", &settings.name, 1, 32)
      .required()
      .help(
          "The appliance's name; its lock and its counters file are `NAME.lock` and `NAME.stats`.");
  table.path("runtime_directory", &settings.runtime_directory, 1, 255)
      .help("The directory of [these files](#one-name-one-appliance). Created when absent, "
            "removed when empty.");
  table.integer("drain_timeout_ms", &settings.drain_timeout_ms, 0, 600'000)
      .help("After SIGTERM, SIGINT or SIGHUP, requests in flight have this long to finish; then "
            "connections are closed, and file operations have as long again, but at least a "
            "second.");
  table.integer("trace_requests", &settings.trace_requests, 0, kTraceRequestsMax)
      .help(with_product_name(
          "The number of recent requests that each shard records for `PROGRAM trace` "
          "([trace.md](trace.md)), 64 bytes each in `NAME.stats`; 0: none."));
  table.text("user", &settings.user, 1, 32)
      .otherwise("the one that starts it")
      .help("The user, by name or number in /etc/passwd, that an appliance started as root "
            "becomes once all memory is taken ([Giving up root](#giving-up-root)).");
}

static void describe(ConfigurationTable& table, PoolSettings& settings) {
  table.size("bytes", &settings.bytes, 4 * kKiB, kSizeMaxBytes)
      .required()
      .rule(Rule::kMultipleOfPages)
      .help("The size of the whole pool, including segment 0 (owner `boot`).");
  table.choice("pages", &settings.pages, kPageChoices)
      .help("The page size of the pool; see Pages and nodes below. Smaller pages are never used "
            "instead, except for memory that "
            "[outsiders](join.md#what-a-joiner-can-and-cannot-do) may write.");
  table.choice("enforce", &settings.enforce, kEnforcements)
      .help("The guard against unmapping memory of the sealed pool: the kernel where it can, or "
            "also a seccomp filter ([pool.md](pool.md)).");
  table.size("heap_min_bytes", &settings.heap_min_bytes, 0, kSizeMaxBytes)
      .help("The least size of the heap, which gets all memory that no service plans; never less "
            "than 8 MiB and 4 MiB for each shard.");
  table.choice("heap_pages", &settings.heap_pages, kPageChoices)
      .otherwise("those of the pool")
      .help("The page size of the heap.");
  table.integer("heap_node", &settings.heap_node, 0, kNodeCountMax - 1)
      .otherwise("the first shard's")
      .help("The NUMA node of the heap.");
}

static void describe(ConfigurationTable& table, AllocSettings& settings) {
  table.choice("expect", &settings.expect, kHeaps)
      .help("The memory that malloc must hand out; boot is refused if it hands out other memory.");
}

static void describe(ConfigurationTable& table, LimitSettings& settings) {
  table.text("owner", &settings.owner, 1, 63)
      .required()
      .unique()
      .help(with_product_name(
          "An owner of heap memory, as `PROGRAM stats` names it: `\"heap:SERVICE\"`, or "
          "`\"heap\"` for memory without a named owner."));
  table.size("bytes", &settings.bytes, kLimitUnitBytes, kSizeMaxBytes)
      .required()
      .help("The most heap memory that this owner may have; only its own requests beyond that "
            "are refused ([allocator.md](allocator.md)).");
}

static void describe(ConfigurationTable& table, EventLoopSettings& settings) {
  table.choice("sockets", &settings.sockets, kSockets)
      .help("The backend of sockets. The default uses io_uring where the kernel allows it, else "
            "epoll.");
  table.integer("spin_us", &settings.spin_us, 0, 1'000'000)
      .help("How long an idle shard polls, in microseconds, before it sleeps.");
  table.integer("stall_ms", &settings.stall_ms, 0, 600'000)
      .help("A step that occupies a shard for longer, in milliseconds, is logged by name and "
            "counted as a stall; 0: no step is.");
  table.boolean("shared_cores", &settings.shared_cores)
      .help("Several shards may have the same `cpu`, to try a configuration on a machine with "
            "fewer cores ([operations.md](operations.md#cores)).");
}

static void describe(ConfigurationTable& table, ShardSettings& settings) {
  table.name("name", &settings.name, 1, 32)
      .required()
      .unique()
      .help("The name of this shard in other keys and in counters.");
  table.integer("cpu", &settings.cpu, 0, 1023)
      .required()
      .help("The core that the shard's thread is pinned to. The thread polls, so each shard has a "
            "core of its own, unless `event_loop.shared_cores` is true.");
}

static void describe(ConfigurationTable& table, GroupSettings& settings) {
  table.name("name", &settings.name, 1, 32)
      .required()
      .unique()
      .help("The name of a trust group; its FIFOs lie in the segment `fifo:NAME`.");
  table.choice("layout", &settings.shape.kind, kLayouts)
      .help("`lazy`: one FIFO for each member, and fast boxes for pairs that exchange many "
            "messages; `mesh`: a lane for each pair.");
  table.integer("members", &settings.member_count, 1, kMemberCountMax)
      .required()
      .help("The most members at once, including the owner of the pool.");
  table.integer("entries", &settings.shape.entry_count, 2, 32768)
      .rule(Rule::kPowerOfTwo)
      .help("The entries of each member's FIFO, or of each lane.");
  table.size("eager_bytes", &settings.shape.eager_bytes, 64, kMessageBytesMax)
      .help("The longest message that is copied; longer ones travel by loan or single copy.");
  table.integer("eager_count", &settings.shape.eager_count, 1, kEagerCountMax)
      .help("The most copied messages that each member has in flight. Multiplied by "
            "`eager_bytes` it is at least 128 bytes, in a mesh 192: a put or get needs that "
            "much.");
  table.integer("boxes", &settings.shape.box_count, 0, 1 << 20)
      .otherwise("one for each pair, at most 5 for each member")
      .help("Lazy: the number of fast boxes in the group.");
  table.size("box_bytes", &settings.shape.box_bytes, kFastBoxBytesMin, kFastBoxBytesMax)
      .rule(Rule::kPowerOfTwo)
      .help("Lazy: the size of each fast box.");
  table.integer("box_max_count", &settings.shape.box_count_max, 0, kInboundBoxCountMax)
      .help("Lazy: the most boxes that one receiver grants.");
  table.integer("send_threshold", &settings.shape.send_threshold, 1, 65535)
      .help("Lazy: the number of sends after which a pair gets a box.");
  table.integer("publish_timeout_ms", &settings.shape.publish_timeout_ms, 1, 60'000)
      .help("Lazy: how long a member that is stopped during a send may hold up the messages of "
            "others. When it continues, it sends again, so a short time loses nothing.");
  table.integer("loans", &settings.shape.loan_count, 1, 65535)
      .help("The most outstanding loans of one member.");
  table.boolean("multi_threaded", &settings.shape.is_multi_threaded)
      .help("Mesh: several threads of a member send, so heads and tails get separate cache lines.");
  table.integer("line_bytes", &settings.shape.line_bytes, 64, 128)
      .rule(Rule::kPowerOfTwo)
      .help("The distance between data of two writers, so that they share no cache line.");
  table.check([&settings](ReadTable& read) { check_group(read, settings); });
}

static void describe(ConfigurationTable& table, ProcessSettings& settings) {
  table.name("name", &settings.name, 1, 31)
      .required()
      .unique()
      .help("The name of a kind of process that may join. Its K-th slot, from 0, is NAME.K.");
  table.text("user", &settings.user, 1, 32)
      .required()
      .help("The user that may join as this process: a name in /etc/passwd, or a number as text.");
  table.boolean("trusted", &settings.trusted)
      .help("A trusted process is a member of a group; any other exchanges messages with the "
            "owner alone, in an exchange segment.");
  table.group("group", &settings.group)
      .otherwise("required for a trusted process")
      .help("The group that it is a member of.");
  table.integer("max_count", &settings.max_count, 1, kMemberCountMax - 1)
      .help("The most processes of this name that are joined at once.");
  table.integer("spare_count", &settings.spare_count, 0, kMemberCountMax - 1)
      .otherwise("1; with a heap: 0")
      .help("Trusted: the number of additional slots, with their heaps, for new processes while "
            "the slots of dead ones are not free yet.");
  table.integer("members", &settings.members, 1, kProcessMembersMax)
      .help("The members of each process: one for each of its shards.");
  table.size("heap_bytes", &settings.heap_bytes, 0, kSizeMaxBytes)
      .otherwise("\"0\"")
      .rule(Rule::kOwnHeap)
      .help("The size of each slot's heap, in a segment of its own, `heap:NAME.K`.");
  table.texts("read", Type::kGrants, &settings.read, kSegmentCountMax)
      .help("Further owners whose segments it may read. `\"heap:NAME\"` stands for the heaps of "
            "all processes of that name.");
  table.texts("write", Type::kGrants, &settings.write, kSegmentCountMax)
      .help("Further owners whose segments it may read and write: services only.");
  table.size("box_bytes", &settings.box_bytes, kFastBoxBytesMin, kFastBoxBytesMax)
      .rule(Rule::kPowerOfTwo)
      .help("Not trusted: the size of each of the two boxes in its exchange segment.");
  table.boolean("verbs", &settings.verbs)
      .help("May also use the device of `[verbs]`: the plan then includes all memory that it "
            "registers, and locks, before it is ready ([verbs.md](verbs.md)).");
  table.check([&settings](ReadTable& read) { check_process(read, settings); });
}

static void describe(ConfigurationTable& table, MessagesSettings& settings) {
  table.path("socket", &settings.socket, 1, kSocketPathMax)
      .otherwise("NAME.join in the runtime directory")
      .help("The socket at which processes join.");
  table.choices("single_copy", &settings.single_copy, kSingleCopies, 0)
      .help("How the owner and joined processes copy memory outside the pool: by the first of "
            "these mechanisms that works. Empty: through the pool.");
  table.choice("on_join_failure", &settings.on_join_failure, kJoinFailures)
      .help("The reaction to a process that was admitted and could not use its memory: the "
            "others continue, or the appliance drains and ends with 1. A process that was "
            "refused, or is not trusted, never stops it.");
}

void describe(ConfigurationTable& file, Configuration& all) {
  file.table("appliance", &all.appliance, true);
  file.table("pool", &all.pool, true);
  file.table("alloc", &all.alloc);
  file.tables("limit", &all.limits, 0, 32);
  file.table("event_loop", &all.event_loop);
  file.tables("shard", &all.shards, 1, kShardCountMax);
  file.tables("group", &all.groups, 0, 16);
  file.tables("process", &all.processes, 0, 64);
  file.table("messages", &all.messages);
  describe_parts(file, all);
  file.check([&all](ReadTable& read) { check_across_tables(read, all); });
}

}  // namespace bedplate
