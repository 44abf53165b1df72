#include "apps/boot/configuration_keys.h"

#include "pinned_pool/layout.h"
#include "transport/shm/fast_box_datapath.h"
#include "transport/verbs/verbs_wire.h"

namespace bedplate::keys {
namespace {

constexpr uint64_t kSizeMaxBytes = 64 * kTiB;  // half of what x86-64 can address; sums fit 64 bits

constexpr const char* kRequired = nullptr;
constexpr const char* kPages[] = {"4 KiB", "2 MiB", "1 GiB", "largest"};
constexpr PageWish kPageWishes[] = {PageWish::k4KiB, PageWish::k2MiB, PageWish::k1GiB,
                                    PageWish::kLargest};
constexpr const char* kEnforcements[] = {"kernel", "seccomp"};
constexpr Enforcement kEnforcementValues[] = {Enforcement::kKernel, Enforcement::kSeccomp};
constexpr const char* kHeaps[] = {"any", "pool", "ordinary"};
constexpr HeapExpectation kExpectations[] = {HeapExpectation::kAny, HeapExpectation::kPool,
                                             HeapExpectation::kOrdinary};
constexpr const char* kSockets[] = {"io_uring-or-epoll", "io_uring", "epoll"};
constexpr SocketBackendChoice kBackends[] = {SocketBackendChoice::kIoUringOrEpoll,
                                             SocketBackendChoice::kIoUring,
                                             SocketBackendChoice::kEpoll};
constexpr const char* kLayouts[] = {"lazy", "mesh"};
constexpr GroupKind kGroupKinds[] = {GroupKind::kLazy, GroupKind::kMesh};
constexpr const char* kJoinFailures[] = {"continue", "stop"};
constexpr JoinFailure kJoinFailureValues[] = {JoinFailure::kContinue, JoinFailure::kStop};
constexpr const char* kSingleCopies[] = {"xpmem", "cma", "knem"};
constexpr const char* kRights[] = {"read", "write", "atomic"};
constexpr bool VerbsExportSettings::*kRightValues[] = {&VerbsExportSettings::may_read,
                                                       &VerbsExportSettings::may_write,
                                                       &VerbsExportSettings::may_atomic};
constexpr const char* kVerbsConnects[] = {"exchange", "rdma_cm"};
constexpr VerbsConnect kVerbsConnectValues[] = {VerbsConnect::kExchange, VerbsConnect::kRdmaCm};
constexpr const char* kRemoteHeaps[] = {"none", "read"};
constexpr RemoteHeap kRemoteHeapValues[] = {RemoteHeap::kNone, RemoteHeap::kRead};
constexpr const char* kMachineEnds[] = {"reboot", "power-off", "halt"};
constexpr MachineEnd kMachineEndValues[] = {MachineEnd::kReboot, MachineEnd::kPowerOff,
                                            MachineEnd::kHalt};
constexpr const char* kCrashDumps[] = {"none", "metadata", "owners"};
constexpr CrashDump kCrashDumpValues[] = {CrashDump::kNone, CrashDump::kMetadata,
                                          CrashDump::kOwners};
static_assert(std::size(kPages) == std::size(kPageWishes));
static_assert(std::size(kEnforcements) == std::size(kEnforcementValues));
static_assert(std::size(kHeaps) == std::size(kExpectations));
static_assert(std::size(kSockets) == std::size(kBackends));
static_assert(std::size(kLayouts) == std::size(kGroupKinds));
static_assert(std::size(kSingleCopies) == std::size(kSingleCopyKinds));
static_assert(std::size(kJoinFailures) == std::size(kJoinFailureValues));
static_assert(std::size(kRights) == std::size(kRightValues));
static_assert(std::size(kVerbsConnects) == std::size(kVerbsConnectValues));
static_assert(std::size(kRemoteHeaps) == std::size(kRemoteHeapValues));
static_assert(std::size(kMachineEnds) == std::size(kMachineEndValues));
static_assert(std::size(kCrashDumps) == std::size(kCrashDumpValues));

// What one process of [[process]] may be; a join names each of its members.
constexpr uint64_t kProcessMembersMax = 64;
// sun_path, without its NUL.
constexpr uint64_t kSocketPathMax = 107;
// IFNAMSIZ, without its NUL.
constexpr uint64_t kInterfaceNameMax = 15;
// IB_DEVICE_NAME_MAX, without its NUL.
constexpr uint64_t kDeviceNameMax = 63;
// What a name has room for in the record of an exchange.
constexpr uint64_t kVerbsNameMax = kVerbsNameBytes - 1;
constexpr uint64_t kBackOffMaxMs = 600'000;

// The kernel's core_pattern has 127 bytes, and more words than this one (apps/init/core_dump.cc).
constexpr uint64_t kDumpDeviceMax = 80;

VolumeSettings& volume_of(Draft& draft) { return draft.configuration.blockd.volumes.back(); }
GroupShape& shape_of(Draft& draft) { return draft.configuration.groups.back().shape; }
ProcessSettings& process_of(Draft& draft) { return draft.configuration.processes.back(); }
VerbsSettings& verbs_of(Draft& draft) { return draft.configuration.verbs; }
NetworkSettings& network_of(Draft& draft) { return draft.configuration.networks.back(); }

// Stores a number into `member` of the table that `part` names.
#define BP_NUMBER(part, member) \
  [](Draft& d, Value& v) { part.member = static_cast<decltype(part.member)>(v.number); }
#define BP_TEXT(part, member) [](Draft& d, Value& v) { part.member = std::move(v.text); }

constexpr Key kKeys[] = {
    {"appliance", "name", Type::kName, kRequired, 1, 32, Rule::kNone,
     BP_TEXT(d.configuration.appliance, name)},
    {"appliance", "runtime_directory", Type::kPath, "\"/run/bedplate\"", 1, 255, Rule::kNone,
     BP_TEXT(d.configuration.appliance, runtime_directory)},
    {"appliance", "drain_timeout_ms", Type::kInteger, "5000", 0, 600'000, Rule::kNone,
     BP_NUMBER(d.configuration.appliance, drain_timeout_ms)},

    {"pool", "bytes", Type::kSize, kRequired, 4 * kKiB, kSizeMaxBytes, Rule::kMultipleOfPages,
     [](Draft& d, Value& v) {
       d.configuration.pool.bytes = v.number;
       d.pool_bytes_position = v.position;
     }},
    {"pool", "pages", Type::kPages, "\"2 MiB\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.pool.pages = kPageWishes[v.number]; }},
    {"pool", "enforce", Type::kEnforce, "\"kernel\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.pool.enforce = kEnforcementValues[v.number]; }},
    {"pool", "heap_min_bytes", Type::kSize, "\"32 MiB\"", 0, kSizeMaxBytes, Rule::kNone,
     BP_NUMBER(d.configuration.pool, heap_min_bytes)},
    {"pool", "heap_pages", Type::kPages, "those of the pool", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.pool.heap_pages = kPageWishes[v.number]; }},
    {"pool", "heap_node", Type::kInteger, "the first shard's", 0, kNodeCountMax - 1, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.pool.heap_node = static_cast<int>(v.number); }},

    {"alloc", "expect", Type::kHeap, "\"any\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.alloc.expect = kExpectations[v.number]; }},

    {"limit", "owner", Type::kText, kRequired, 1, 63, Rule::kUnique,
     BP_TEXT(d.configuration.limits.back(), owner)},
    {"limit", "bytes", Type::kSize, kRequired, kLimitUnitBytes, kSizeMaxBytes,
     Rule::kNone, BP_NUMBER(d.configuration.limits.back(), bytes)},

    {"event_loop", "sockets", Type::kSockets, "\"io_uring-or-epoll\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.event_loop.sockets = kBackends[v.number]; }},
    {"event_loop", "spin_us", Type::kInteger, "50", 0, 1'000'000, Rule::kNone,
     BP_NUMBER(d.configuration.event_loop, spin_us)},

    {"shard", "name", Type::kName, kRequired, 1, 32, Rule::kUnique,
     BP_TEXT(d.configuration.shards.back(), name)},
    {"shard", "cpu", Type::kInteger, kRequired, 0, 1023, Rule::kUnique,
     BP_NUMBER(d.configuration.shards.back(), cpu)},

    {"blockd", "listen", Type::kAddresses, kRequired, 1, 8, Rule::kUnique,
     [](Draft& d, Value& v) {
       d.configuration.blockd.listen.push_back(std::move(v.address));
       d.listen_positions.push_back(v.position);
     }},
    {"blockd", "image_listen", Type::kAddresses, "those of listen", 1, 8, Rule::kUnique,
     [](Draft& d, Value& v) {
       d.configuration.blockd.image_listen.push_back(std::move(v.address));
       d.image_listen_positions.push_back(v.position);
     }},
    {"blockd", "connections_shard", Type::kShard, "the first shard", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       d.shard_references.push_back({&d.configuration.blockd.connections_shard, std::move(v)});
     }},
    {"blockd", "volumes_shard", Type::kShard, "the last shard", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       d.shard_references.push_back({&d.configuration.blockd.volumes_shard, std::move(v)});
     }},
    {"blockd", "max_connections", Type::kInteger, "64", 1, 4096, Rule::kNone,
     BP_NUMBER(d.configuration.blockd, max_connections)},
    {"blockd", "requests_per_connection", Type::kInteger, "64", 1, 1024, Rule::kNone,
     BP_NUMBER(d.configuration.blockd, requests_per_connection)},
    {"blockd", "handshake_timeout_ms", Type::kInteger, "10000", 100, 600'000, Rule::kNone,
     BP_NUMBER(d.configuration.blockd, handshake_timeout_ms)},
    {"blockd", "client_timeout_s", Type::kInteger, "60", 0, 3600, Rule::kNone,
     BP_NUMBER(d.configuration.blockd, client_timeout_s)},

    {"blockd.volume", "name", Type::kText, kRequired, 1, 255, Rule::kUnique,
     BP_TEXT(volume_of(d), name)},
    {"blockd.volume", "bytes", Type::kSize, kRequired, kVolumeUnitBytes, kSizeMaxBytes,
     Rule::kMultipleOf4KiB, BP_NUMBER(volume_of(d), bytes)},
    {"blockd.volume", "read_only", Type::kBoolean, "false", 0, 0, Rule::kNone,
     BP_NUMBER(volume_of(d), read_only)},
    {"blockd.volume", "pages", Type::kPages, "those of the pool", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { volume_of(d).pages = kPageWishes[v.number]; }},
    {"blockd.volume", "node", Type::kInteger, "the volumes' shard's", 0, kNodeCountMax - 1,
     Rule::kNone, [](Draft& d, Value& v) { volume_of(d).node = static_cast<int>(v.number); }},

    // The ranges are those of check_group_shape; a test compares them.
    {"group", "name", Type::kName, kRequired, 1, 32, Rule::kUnique,
     BP_TEXT(d.configuration.groups.back(), name)},
    {"group", "layout", Type::kLayout, "\"lazy\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { shape_of(d).kind = kGroupKinds[v.number]; }},
    {"group", "members", Type::kInteger, kRequired, 1, kMemberCountMax, Rule::kNone,
     BP_NUMBER(shape_of(d), member_count)},
    {"group", "entries", Type::kInteger, "128", 2, 32768, Rule::kPowerOfTwo,
     BP_NUMBER(shape_of(d), entry_count)},
    {"group", "eager_bytes", Type::kSize, "\"4 KiB\"", 64, kMessageBytesMax, Rule::kNone,
     BP_NUMBER(shape_of(d), eager_bytes)},
    {"group", "eager_count", Type::kInteger, "4", 1, kEagerCountMax, Rule::kNone,
     BP_NUMBER(shape_of(d), eager_count)},
    {"group", "boxes", Type::kInteger, "one for each pair, at most 5 for each member", 0, 1 << 20,
     Rule::kNone, BP_NUMBER(shape_of(d), box_count)},
    {"group", "box_bytes", Type::kSize, "\"4 KiB\"", kFastBoxBytesMin, kFastBoxBytesMax,
     Rule::kPowerOfTwo, BP_NUMBER(shape_of(d), box_bytes)},
    {"group", "box_max_count", Type::kInteger, "32", 0, kInboundBoxCountMax, Rule::kNone,
     BP_NUMBER(shape_of(d), box_count_max)},
    {"group", "send_threshold", Type::kInteger, "16", 1, 65535, Rule::kNone,
     BP_NUMBER(shape_of(d), send_threshold)},
    {"group", "publish_timeout_ms", Type::kInteger, "50", 1, 60'000, Rule::kNone,
     BP_NUMBER(shape_of(d), publish_timeout_ms)},
    {"group", "loans", Type::kInteger, "128", 1, 65535, Rule::kNone,
     BP_NUMBER(shape_of(d), loan_count)},
    {"group", "multi_threaded", Type::kBoolean, "false", 0, 0, Rule::kNone,
     BP_NUMBER(shape_of(d), is_multi_threaded)},
    {"group", "line_bytes", Type::kInteger, "64", 64, 128, Rule::kPowerOfTwo,
     BP_NUMBER(shape_of(d), line_bytes)},

    {"process", "name", Type::kName, kRequired, 1, 31, Rule::kUnique,
     BP_TEXT(process_of(d), name)},
    {"process", "user", Type::kText, kRequired, 1, 32, Rule::kNone, BP_TEXT(process_of(d), user)},
    {"process", "trusted", Type::kBoolean, "true", 0, 0, Rule::kNone,
     BP_NUMBER(process_of(d), trusted)},
    {"process", "group", Type::kGroup, "required of a trusted one", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       d.group_references.push_back({d.configuration.processes.size() - 1, std::move(v)});
     }},
    {"process", "max_count", Type::kInteger, "1", 1, kMemberCountMax - 1, Rule::kNone,
     BP_NUMBER(process_of(d), max_count)},
    {"process", "spare_count", Type::kInteger, "1, with a heap 0", 0, kMemberCountMax - 1,
     Rule::kNone, BP_NUMBER(process_of(d), spare_count)},
    {"process", "members", Type::kInteger, "1", 1, kProcessMembersMax, Rule::kNone,
     BP_NUMBER(process_of(d), members)},
    {"process", "heap", Type::kSize, "\"0\"", 0, kSizeMaxBytes, Rule::kOwnHeap,
     BP_NUMBER(process_of(d), heap_bytes)},
    {"process", "read", Type::kGrants, "[]", 0, kSegmentCountMax, Rule::kUnique,
     [](Draft& d, Value& v) { process_of(d).read.push_back(std::move(v.text)); }},
    {"process", "write", Type::kGrants, "[]", 0, kSegmentCountMax, Rule::kUnique,
     [](Draft& d, Value& v) { process_of(d).write.push_back(std::move(v.text)); }},
    {"process", "box_bytes", Type::kSize, "\"4 KiB\"", kFastBoxBytesMin, kFastBoxBytesMax,
     Rule::kPowerOfTwo, BP_NUMBER(process_of(d), box_bytes)},
    {"process", "verbs", Type::kBoolean, "false", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       process_of(d).verbs = v.number != 0;
       if (process_of(d).verbs) d.process_verbs.push_back(v.position);
     }},

    {"messages", "socket", Type::kPath, "NAME.join in the runtime directory", 1, kSocketPathMax,
     Rule::kNone, BP_TEXT(d.configuration.messages, socket)},
    {"messages", "single_copy", Type::kSingleCopy, "[\"xpmem\",\"cma\",\"knem\"]", 0,
     std::size(kSingleCopies), Rule::kUnique,
     [](Draft& d, Value& v) {
       d.configuration.messages.single_copy.push_back(kSingleCopyKinds[v.number]);
     }},
    {"messages", "on_join_failure", Type::kJoinFailure, "\"continue\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       d.configuration.messages.on_join_failure = kJoinFailureValues[v.number];
     }},

    {"verbs", "required", Type::kBoolean, "true", 0, 0, Rule::kNone,
     BP_NUMBER(verbs_of(d), required)},
    {"verbs", "device", Type::kText, "the first that can be used", 1, kDeviceNameMax, Rule::kNone,
     BP_TEXT(verbs_of(d), device)},
    {"verbs", "port", Type::kInteger, "the first that can be used", 1, 255, Rule::kNone,
     BP_NUMBER(verbs_of(d), port)},
    {"verbs", "shard", Type::kShard, "the first shard", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.shard_references.push_back({&verbs_of(d).shard, std::move(v)}); }},
    {"verbs", "listen", Type::kAddress, "it only dials", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { verbs_of(d).listen = std::move(v.address); }},
    {"verbs", "connect", Type::kVerbsConnect, "\"exchange\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { verbs_of(d).connect = kVerbsConnectValues[v.number]; }},
    {"verbs", "window", Type::kInteger, "64", 4, 4096, Rule::kPowerOfTwo,
     BP_NUMBER(verbs_of(d), window)},
    {"verbs", "message_bytes", Type::kSize, "\"4 KiB\"", 256, 64 * kKiB, Rule::kPowerOfTwo,
     BP_NUMBER(verbs_of(d), message_bytes)},
    {"verbs", "operations", Type::kInteger, "64", 1, 4096, Rule::kNone,
     BP_NUMBER(verbs_of(d), operations)},
    {"verbs", "landing_bytes", Type::kSize, "\"1 MiB\"", 4 * kKiB, kGiB / 2,
     Rule::kMultipleOf4KiB, BP_NUMBER(verbs_of(d), landing_bytes)},
    {"verbs", "datagrams", Type::kInteger, "no datagrams", 4, 4096, Rule::kPowerOfTwo,
     BP_NUMBER(verbs_of(d), datagrams)},
    {"verbs", "max_peers", Type::kInteger, "as many as are listed", 1, kVerbsPeerCountMax,
     Rule::kNone, BP_NUMBER(verbs_of(d), max_peers)},
    {"verbs", "trust_windows", Type::kBoolean, "false", 0, 0, Rule::kNone,
     BP_NUMBER(verbs_of(d), trust_windows)},
    {"verbs", "back_off_min_ms", Type::kInteger, "10", 1, kBackOffMaxMs, Rule::kNone,
     BP_NUMBER(verbs_of(d), back_off_min_ms)},
    {"verbs", "back_off_max_ms", Type::kInteger, "1000", 1, kBackOffMaxMs, Rule::kNone,
     BP_NUMBER(verbs_of(d), back_off_max_ms)},
    {"verbs", "give_up_ms", Type::kInteger, "30000", 1, 86'400'000, Rule::kNone,
     BP_NUMBER(verbs_of(d), give_up_ms)},
    {"verbs", "remote", Type::kRemoteHeap, "\"none\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { verbs_of(d).remote = kRemoteHeapValues[v.number]; }},
    {"verbs", "driver", Type::kText, "part of the kernel", 1, kModuleNameMax, Rule::kNone,
     BP_TEXT(verbs_of(d), driver)},
    {"verbs", "interface", Type::kText, "required of rdma_rxe", 1, kInterfaceNameMax, Rule::kNone,
     BP_TEXT(verbs_of(d), interface)},

    {"verbs.peer", "name", Type::kName, kRequired, 1, kVerbsNameMax, Rule::kUnique,
     [](Draft& d, Value& v) {
       verbs_of(d).peers.back().name = v.text;
       d.peer_names.push_back(std::move(v));
     }},
    {"verbs.peer", "address", Type::kAddress, "none: it dials", 0, 0, Rule::kUnique,
     [](Draft& d, Value& v) { verbs_of(d).peers.back().address = std::move(v.address); }},

    {"verbs.export", "name", Type::kName, kRequired, 1, 32, Rule::kUnique,
     BP_TEXT(verbs_of(d).exports.back(), name)},
    {"verbs.export", "bytes", Type::kSize, kRequired, 4 * kKiB, kSizeMaxBytes,
     Rule::kMultipleOf4KiB, BP_NUMBER(verbs_of(d).exports.back(), bytes)},
    {"verbs.export", "rights", Type::kRights, kRequired, 1, std::size(kRights), Rule::kUnique,
     [](Draft& d, Value& v) { verbs_of(d).exports.back().*kRightValues[v.number] = true; }},
    {"verbs.export", "pages", Type::kPages, "those of the pool", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { verbs_of(d).exports.back().pages = kPageWishes[v.number]; }},

    {"init", "on_terminate", Type::kMachineEnd, "\"power-off\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.init.on_terminate = kMachineEndValues[v.number]; }},
    {"init", "on_ctrl_alt_del", Type::kMachineEnd, "\"reboot\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) {
       d.configuration.init.on_ctrl_alt_del = kMachineEndValues[v.number];
     }},

    {"network", "interface", Type::kText, kRequired, 1, kInterfaceNameMax, Rule::kUnique,
     BP_TEXT(network_of(d), interface)},
    {"network", "address", Type::kIpPrefix, "no address", 0, 0, Rule::kUnique,
     BP_TEXT(network_of(d), address)},
    {"network", "gateway", Type::kIpAddress, "no gateway", 0, 0, Rule::kNone,
     BP_TEXT(network_of(d), gateway)},
    {"network", "mtu", Type::kInteger, "the device's own", 68, 65535, Rule::kNone,
     BP_NUMBER(network_of(d), mtu)},
    {"network", "driver", Type::kText, "\"virtio_net\"", 1, kModuleNameMax, Rule::kNone,
     BP_TEXT(network_of(d), driver)},

    {"watchdog", "device", Type::kPath, "\"/dev/watchdog\"", 1, 255, Rule::kNone,
     BP_TEXT(d.configuration.watchdog, device)},
    {"watchdog", "timeout_s", Type::kInteger, "30", 2, 3600, Rule::kNone,
     BP_NUMBER(d.configuration.watchdog, timeout_s)},
    {"watchdog", "required", Type::kBoolean, "true", 0, 0, Rule::kNone,
     BP_NUMBER(d.configuration.watchdog, required)},
    {"watchdog", "driver", Type::kText, "part of the kernel", 1, kModuleNameMax, Rule::kNone,
     BP_TEXT(d.configuration.watchdog, driver)},

    {"crash", "action", Type::kMachineEnd, "\"reboot\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.crash.action = kMachineEndValues[v.number]; }},
    {"crash", "delay_s", Type::kInteger, "5", 0, 3600, Rule::kNone,
     BP_NUMBER(d.configuration.crash, delay_s)},
    {"crash", "dump", Type::kCrashDump, "\"none\"", 0, 0, Rule::kNone,
     [](Draft& d, Value& v) { d.configuration.crash.dump = kCrashDumpValues[v.number]; }},
    {"crash", "owners", Type::kOwners, "[]", 0, kSegmentCountMax, Rule::kUnique,
     [](Draft& d, Value& v) { d.configuration.crash.owners.push_back(std::move(v.text)); }},
    {"crash", "device", Type::kPath, "required of a dump", 1, kDumpDeviceMax, Rule::kNone,
     BP_TEXT(d.configuration.crash, device)},
    {"crash", "drivers", Type::kModules, "[]", 0, 8, Rule::kUnique,
     [](Draft& d, Value& v) { d.configuration.crash.drivers.push_back(std::move(v.text)); }},
};

#undef BP_NUMBER
#undef BP_TEXT

constexpr Table kTables[] = {
    {"appliance", true, 0, [](Configuration&) {}},
    {"pool", true, 0, [](Configuration&) {}},
    {"alloc", false, 0, [](Configuration&) {}},
    {"limit", false, 32, [](Configuration& c) { c.limits.emplace_back(); }},
    {"event_loop", false, 0, [](Configuration&) {}},
    {"shard", true, 64, [](Configuration& c) { c.shards.emplace_back(); }},
    {"blockd", false, 0, [](Configuration& c) { c.blockd.enabled = true; }},
    {"blockd.volume", true, 64, [](Configuration& c) { c.blockd.volumes.emplace_back(); }},
    {"group", false, 16, [](Configuration& c) { c.groups.emplace_back(); }},
    {"process", false, 64, [](Configuration& c) { c.processes.emplace_back(); }},
    {"messages", false, 0, [](Configuration&) {}},
    {"verbs", false, 0, [](Configuration& c) { c.verbs.enabled = true; }},
    {"verbs.peer", false, kVerbsPeerCountMax,
     [](Configuration& c) { c.verbs.peers.emplace_back(); }},
    {"verbs.export", false, 32, [](Configuration& c) { c.verbs.exports.emplace_back(); }},
    {"init", false, 0, [](Configuration&) {}},
    {"network", false, 16, [](Configuration& c) { c.networks.emplace_back(); }},
    {"watchdog", false, 0, [](Configuration& c) { c.watchdog.enabled = true; }},
    {"crash", false, 0, [](Configuration&) {}},
};

}  // namespace

std::span<const Key> all_keys() noexcept { return kKeys; }
std::span<const Table> all_tables() noexcept { return kTables; }

// ---- Which keys and tables a table may hold ----

std::string_view parent_of(std::string_view table_name) {
  const size_t dot = table_name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : table_name.substr(0, dot);
}

std::string_view own_name(const Table& table) {
  const std::string_view name = table.name;
  const std::string_view parent = parent_of(name);
  return parent.empty() ? name : name.substr(parent.size() + 1);
}

const Key* find_key(std::string_view table_name, std::string_view name) {
  for (const Key& key : kKeys) {
    if (table_name == key.table && name == key.name) return &key;
  }
  return nullptr;
}

const Table* find_table(std::string_view parent, std::string_view name) {
  for (const Table& table : kTables) {
    if (parent_of(table.name) == parent && own_name(table) == name) return &table;
  }
  return nullptr;
}

// ---- Kinds of values ----

bool is_list(Type type) noexcept {
  return type == Type::kAddresses || type == Type::kOwners || type == Type::kGrants ||
         type == Type::kModules || type == Type::kSingleCopy || type == Type::kRights;
}

std::span<const char* const> choices_of(Type type) noexcept {
  switch (type) {
    case Type::kPages: return kPages;
    case Type::kEnforce: return kEnforcements;
    case Type::kHeap: return kHeaps;
    case Type::kSockets: return kSockets;
    case Type::kLayout: return kLayouts;
    case Type::kJoinFailure: return kJoinFailures;
    case Type::kMachineEnd: return kMachineEnds;
    case Type::kCrashDump: return kCrashDumps;
    case Type::kSingleCopy: return kSingleCopies;
    case Type::kRights: return kRights;
    case Type::kVerbsConnect: return kVerbsConnects;
    case Type::kRemoteHeap: return kRemoteHeaps;
    default: return {};
  }
}

}  // namespace bedplate::keys
