// The plan of a service: all that it will ever need (Service::plan). The runtime adds up what all
// of them say: `bedplate plan` prints it, preflight looks for it, boot takes exactly that, and
// ServiceContext hands it out by the names that it was planned under.
//
// Threads: the main thread, in Service::plan(). Texts and structs are copied. Numbers that are said
// of one shard several times add up. A plan that makes no sense ends the boot, by an error of kind
// kConfiguration that names the service: nothing here returns one.
//
// Invariants, around each thing that is said: 1. There are needs for each shard of the
// configuration, until all of them are taken: nothing is said after that. 2. A carve, a datagram
// socket, a file is there once, on a shard that there is. 3. A plan that is refused has an answer
// and a cure. (is_valid)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "apps/configuration/configuration.h"
#include "apps/counters/trace_table.h"
#include "apps/services/planned_datagrams.h"
#include "apps/services/planned_files.h"
#include "pinned_pool/plan.h"
#include "platform/counter_table.h"
#include "transport/sockets/datagram_socket.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

// The needs of one service on one shard.
struct ShardNeeds {
  uint32_t connections = 0;
  uint32_t timers = 0;
  uint32_t sources = 0;
  uint32_t watches = 0;
  bool has_messages = false;
};

// kOffered: a client may speak TLS, and the service looks at ServicePlan::plain_text for which
// listeners it must. kAlways: no client is served without.
enum class Encryption { kNone, kOffered, kAlways };

// The reason why a service listens only to this machine, and the cure that lets it listen to
// others; both empty: it listens anywhere.
struct LocalOnly {
  std::string answer = {};
  std::string cure = {};

  bool is_asked() const noexcept { return !answer.empty(); }
};

// Access to sockets on Unix paths: for everybody that reaches them, or only for the user and the
// group named here, and root.
struct SocketAccess {
  bool is_restricted = false;
  std::string user = {};   // empty: that of the process; the runtime says it
  std::string group = {};  // empty: no others
};

// The terms on which a service takes clients. `tls_cure`: the setting that gives it TLS, if there
// is one: "set tls_certificate in [cache]". `local_only`: a reason of its own to serve this machine
// alone; it is named before the lack of TLS.
struct ListenTerms {
  Encryption encryption = Encryption::kNone;
  std::string tls_cure = {};
  LocalOnly local_only = {};
  SocketAccess access = {};  // to Unix sockets
};

// Addresses under one key of a service's table.
struct ListenNeed {
  std::string key;
  std::vector<SocketAddress> addresses;
  LocalOnly local_only = {};
  SocketAccess access = {};
};

class DatagramNetwork;

// A datagram socket, by its name; its buffers are the carve of `owner`, or with its network.
struct DatagramNeed {
  std::string name;
  uint32_t shard = 0;
  DatagramShape shape;
  OwnerName owner;
  DatagramNetwork* network = nullptr;  // nullptr: the kernel's
  std::optional<DatagramOpening> opening = {};
};

struct ServiceNeeds {
  Service* service = nullptr;
  std::string name;
  std::vector<SegmentRequest> segments;
  std::vector<ShardNeeds> shards;  // as many as [[shard]]
  std::vector<ListenNeed> listens;
  std::vector<DatagramNeed> datagrams;
  std::vector<FileNeed> files;
  std::vector<CounterSet> counters;
  std::optional<TraceDescription> trace;
  std::vector<std::string> messages;  // names, headed by the service's
  uint64_t heap_bytes = 0;
  std::vector<CarvePlan> kept_heaps;  // by the owner of heap memory that each is kept for
  uint64_t descriptors = 0;
  uint64_t threads = 0;
  std::string descriptor_keys;  // the keys that would lower them: "max_connections in [cache]"
  uint64_t capabilities = 0;    // bits of CAP_*
  std::vector<std::string> vfio_devices;
  std::vector<std::string> modules;
  std::vector<std::string> image_files;
};

class ServicePlan {
 public:
  ServicePlan(const Configuration& configuration, Service& service);

  // The whole configuration; shards are known by their index in `shards`.
  const Configuration& configuration() const noexcept { return configuration_; }

  // The best placement for memory that `shard` works on: the pool's pages, its core's node.
  Placement placement(uint32_t shard);

  // A segment of the service's own, cut into `carves`, for ServiceContext::carve. Owners are named
  // "NAME" or "WHAT:NAME", and no two services have the same. Sizes are multiples of 64 bytes, over
  // 0; carves lie in their order. Without `is_for_devices` its pointers have no key.
  void segment(const OwnerName& owner, std::vector<CarvePlan> carves, const Placement& placement,
               bool is_for_devices = true);
  // Heap memory that it takes before it serves, beside that of others.
  void heap(uint64_t bytes) { needs_.heap_bytes += bytes; }
  // Heap memory that it takes while it serves, on so many threads, for `owner` ("heap:NAME"): it is
  // kept for that owner alone, however full the heap is. Each thread costs 4 MiB at least.
  void kept_heap(const OwnerName& owner, uint64_t bytes, uint32_t thread_count);

  // How many connections may be open on `shard` at once; `key` of its table, if not nullptr, says
  // so. They count as descriptors.
  void connections(uint32_t shard, uint32_t count, const char* key);
  // Other descriptors that it will have open at once; `key`, if not nullptr, lowers them.
  void descriptors(uint32_t count, const char* key);
  // Threads of its own (platform/thread_stack.h), beside the shards; their stacks are planned.
  void threads(uint32_t count) { needs_.threads += count; }
  // How many timers may be armed at once, and how many sources the loop of `shard` will poll.
  void timers(uint32_t shard, uint32_t count);
  void sources(uint32_t shard, uint32_t count);
  // Descriptors that its sockets watch at once (StreamSockets::start_watching), connections that
  // are being made (transport/sockets/connecting.h) included.
  void watches(uint32_t shard, uint32_t count);

  // A datagram socket on `shard` that it calls `name`; ServiceContext::datagram_socket. Its buffers
  // are a carve of the segment "datagrams-SHARD:NAME": the shard's number, the service's name. It
  // counts as a descriptor and as a watch.
  // With `network`, the name of a network that another service of this configuration has (a port),
  // the socket is on that, and all that it takes is that service's.
  // With `opening` it is opened as that says: by the kernel before anything is taken, as listening
  // sockets are; ServiceContext::open_datagram_socket. Without, the service opens it in create(),
  // when an error ends a boot that has taken all its memory.
  void datagram_socket(uint32_t shard, const char* name, const DatagramShape& shape,
                       std::string_view network = "",
                       std::optional<DatagramOpening> opening = std::nullopt);

  // Sockets that the runtime opens before anything is taken, and closes; ServiceContext::listeners.
  // As first process of an image: at `in_image` instead, unless it is empty. If `terms` have a
  // reason to serve this machine alone, above all if clients are in clear and plain_text() is not
  // kAllowed, an address in either that others reach is refused here, a passed socket by preflight.
  void listen(const char* key, const std::vector<SocketAddress>& addresses,
              const std::vector<SocketAddress>& in_image = {}, const ListenTerms& terms = {});
  // The key "plain_text" of its table. The runtime describes it in each table with addresses.
  PlainText plain_text() const;

  static constexpr size_t kFileCountMax = 1 << 16;  // of one service

  // A file that the runtime opens before anything is taken, for `shard`, and closes;
  // ServiceContext::file. It counts as a descriptor, and has counters of its own.
  void file(uint32_t shard, const FilePlan& plan);

  // It exchanges messages on `shard`: ServiceContext::messenger.
  void messages(uint32_t shard);
  // It handles a message that others know as "NAME.name", with its own name in front, together
  // kMessageNameMax bytes at most; the runtime gives it a number: ServiceContext::message.
  void message(const char* name) { needs_.messages.push_back(needs_.name + "." + name); }

  // A struct of counters with a function describe(CounterTable&, Counters&);
  // ServiceContext::counters. `instance`: the counted thing, if there are several. `measured`:
  // CounterSet::measured.
  template <typename Counters>
  void counters(const char* name, std::string_view instance = "",
                std::vector<std::string> measured = {}) {
    add_counters({.owner = needs_.name,
                  .name = name,
                  .instance = std::string(instance),
                  .bytes = sizeof(Counters),
                  .counters = described_counters<Counters>(),
                  .measured = std::move(measured)});
  }

  // The same, described by hand.
  void counters(CounterSet set) { add_counters(std::move(set)); }

  // It traces the stations that its requests pass, on all its shards: ServiceContext::trace. Once.
  void trace(TraceDescription description);

  // A capability that it needs from create() on: CAP_NET_ADMIN, ... The others go if the runtime
  // gives up root. CAP_SETUID and CAP_SETGID are refused if [appliance] user names a user.
  // Requires: 0..63.
  void capability(int number) {
    BP_ASSERT(number >= 0 && number < 64);
    needs_.capabilities |= uint64_t{1} << number;
  }

  // A PCI device that it drives itself, by VFIO: "0000:03:00.0". Preflight looks whether it can be
  // had; in an image the first process gives it to vfio-pci. The pool is then mapped for it once
  // ServiceContext::vfio is given its group.
  void vfio_device(const std::string& address);

  // A module of the kernel that it takes, and a file, by its path from the root, that it reads:
  // an image holds them.
  void module(const char* name) { needs_.modules.push_back(name); }
  void image_file(const std::string& path) { needs_.image_files.push_back(path); }

  // Called by the runtime. Errors (kConfiguration): the first thing in the plan that makes no
  // sense.
  Result<ServiceNeeds> take();

  bool is_valid() const noexcept;

 private:
  ShardNeeds* find_shard(uint32_t shard, const char* doing);
  DatagramNetwork* find_network(const std::string& doing, std::string_view name);
  void add_datagram_segments();
  void add_counters(CounterSet set);
  enum NameKind { kCarveNames, kDatagramNames, kFileNames, kCounterNames, kNameKindCount };
  // Whether no other thing of this kind has the name already.
  bool is_new(NameKind kind, std::string name) {
    return names_[kind].insert(std::move(name)).second;
  }
  bool check_counter(const CounterSet& set, const CounterDescription& counter);
  LocalOnly local_only(const ListenTerms& terms) const;
  void refuse(const std::string& doing, const std::string& answer, const std::string& cure);

  const Configuration& configuration_;
  ServiceNeeds needs_;
  std::unordered_set<std::string> names_[kNameKindCount];
  bool is_refused_ = false;
  Error first_;
};

}  // namespace bedplate
