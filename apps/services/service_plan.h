// The plan of a service: all that it will ever need (Service::plan). The runtime adds up the plans
// of all services: `bedplate plan` prints the sum, preflight checks that the machine has it, boot
// takes exactly that, and ServiceContext hands it out by the planned names.
//
// Threads: the main thread, in Service::plan(). Texts and structs are copied. Several calls for one
// shard add up. A plan that makes no sense ends the boot, by an error of kind kConfiguration that
// names the service. The functions return no errors: take() returns the first one.
//
// Invariants, checked by each function that plans something: 1. There are needs for each shard of
// the configuration until take(); nothing is planned after that. 2. A carve, a datagram socket or a
// file is planned once, on an existing shard. 3. A refused plan has an answer and a cure.
// (is_valid)
#pragma once

#include <cstddef>
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
#include "apps/services/planned_tls.h"
#include "apps/services/shard_counters.h"
#include "pinned_pool/plan.h"
#include "platform/counter_table.h"
#include "platform/units.h"
#include "transport/sockets/datagram_socket.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {

// The needs of one service on one shard.
struct ShardNeeds {
  uint32_t connections = 0;
  uint32_t timers = 0;
  uint32_t sources = 0;
  uint32_t watches = 0;
  uint32_t questions = 0;
  bool has_messages = false;
};

// kOffered: a client may speak TLS; ServicePlan::plain_text says on which listeners it must.
// kAlways: no client is served without TLS.
enum class Encryption { kNone, kOffered, kAlways };

// The reason why a service listens only on this machine, and the cure that lets it listen to
// others. Both empty: it listens anywhere.
struct LocalOnly {
  std::string answer = {};
  std::string cure = {};

  bool is_asked() const noexcept { return !answer.empty(); }
};

// Access to Unix sockets: for everybody who reaches them, or only for the user and the group named
// here, and root.
struct SocketAccess {
  bool is_restricted = false;
  std::string user = {};   // empty: the process's user, set by the runtime
  std::string group = {};  // empty: no group
};

// The terms on which a service takes clients. `tls_cure`: the setting that enables TLS, if there is
// one: "set tls_certificate in [cache]". `local_only`: another reason to serve this machine alone;
// it is reported before the lack of TLS.
struct ListenTerms {
  Encryption encryption = Encryption::kNone;
  std::string tls_cure = {};
  LocalOnly local_only = {};
  SocketAccess access = {};  // to Unix sockets
  // The shards that take clients: each has a socket of its own at each TCP address, and the kernel
  // spreads clients over them. Other sockets exist once, for the first of them. Empty: all exist
  // once.
  std::vector<uint32_t> shards = {};
};

// The differences between services with TLS. `heap_owner`: OpenSSL's memory is charged to it;
// nullptr: "heap:tls-NAME". `counters`: the instance of the shard's TlsCounters, if the service has
// TLS on several shards; with `are_summed` it is the shard's name, and their sum is shown, too, as
// by ServicePlan::shard_counters. `handshake_ns_max`: a client that has begun TLS, or must, and
// does not end the handshake in this time is disconnected, counted (tls_failed_late) and logged; 0:
// the service sees to that itself.
struct TlsTerms {
  const char* heap_owner = nullptr;
  std::string counters = {};
  uint64_t handshake_ns_max = 10 * kNsPerSecond;
  bool are_summed = false;
};

// Addresses under one key of a service's table.
struct ListenNeed {
  std::string key;
  std::vector<SocketAddress> addresses;
  LocalOnly local_only = {};
  SocketAccess access = {};
  std::vector<uint32_t> shards = {};

  size_t place_count() const noexcept { return shards.empty() ? 1 : shards.size(); }
};

class DatagramNetwork;

// A datagram socket, by its name. Its buffers are the carve of `owner`, or belong to its network.
struct DatagramNeed {
  std::string name;
  uint32_t shard = 0;
  DatagramShape shape;
  OwnerName owner;
  DatagramNetwork* network = nullptr;  // nullptr: the socket is the kernel's
  std::optional<DatagramOpening> opening = {};
};

struct ServiceNeeds {
  Service* service = nullptr;
  std::string name;
  std::vector<SegmentRequest> segments;
  std::vector<ShardNeeds> shards;  // one for each [[shard]]
  std::vector<ListenNeed> listens;
  std::vector<DatagramNeed> datagrams;
  std::vector<FileNeed> files;
  std::optional<TlsNeed> tls;
  std::vector<CounterSet> counters;
  std::optional<TraceDescription> trace;
  std::vector<std::string> messages;  // names with the service's prefix
  uint64_t heap_bytes = 0;
  std::vector<CarvePlan> kept_heaps;  // by the owner that each is kept for
  uint64_t descriptors = 0;
  uint64_t threads = 0;
  bool has_socket_thread = false;
  std::string descriptor_keys;  // keys that lower the count: "max_connections in [cache]"
  uint64_t capabilities = 0;    // bits of CAP_*
  std::vector<std::string> vfio_devices;
  std::vector<std::string> modules;
  std::vector<std::string> image_files;
};

class ServicePlan {
 public:
  ServicePlan(const Configuration& configuration, Service& service);

  // The whole configuration; a shard is named by its index in `shards`.
  const Configuration& configuration() const noexcept { return configuration_; }

  // The best placement for memory that `shard` works on: the pool's pages, its core's node.
  Placement placement(uint32_t shard);

  // A segment of the service, divided into `carves`, for ServiceContext::carve. Owners are named
  // "NAME" or "WHAT:NAME", after the service. A segment's owner is unique in the appliance, a
  // carve's owner in the service. Sizes are multiples of 64 bytes, over 0; the carves follow in
  // order. Without `is_for_devices` its pointers have no region key.
  void segment(const OwnerName& owner, std::vector<CarvePlan> carves, const Placement& placement,
               bool is_for_devices = true);
  // Heap memory that it takes before it serves, added to that of others.
  void heap(uint64_t bytes) { needs_.heap_bytes += bytes; }
  // Heap memory that it takes while it serves, on `thread_count` threads, for `owner`
  // ("heap:NAME"). It is kept for that owner alone, however full the heap is. The bytes are rounded
  // up to 4 MiB, and each thread after the first costs another 4 MiB.
  void kept_heap(const OwnerName& owner, uint64_t bytes, uint32_t thread_count);

  // How many connections may be open on `shard` at once, set by `key` of its table, if not nullptr.
  // They count as descriptors.
  void connections(uint32_t shard, uint32_t count, const char* key);
  // Other descriptors that it has open at once; `key`, if not nullptr, sets the number.
  void descriptors(uint32_t count, const char* key);
  // Threads of the service (platform/thread_stack.h), beside the shards; their stacks are planned.
  void threads(uint32_t count) { needs_.threads += count; }
  // A SocketThread, with its own descriptors and those of `connection_count` connections, set by
  // `key` of its table, if not nullptr.
  void socket_thread(uint32_t connection_count, const char* key);
  // How many timers the loop of `shard` may have armed at once, and how many sources it polls.
  void timers(uint32_t shard, uint32_t count);
  void sources(uint32_t shard, uint32_t count);
  // Descriptors that its sockets watch at once (StreamSockets::start_watching), including
  // connections in progress (transport/sockets/connecting.h).
  void watches(uint32_t shard, uint32_t count);
  // Questions that it asks on `shard`, to any shard, in flight at once: ServiceContext::asker.
  void questions(uint32_t shard, uint32_t count);

  // A datagram socket `name` on `shard`, for ServiceContext::datagram_socket. Its buffers are a
  // carve of the segment "datagrams-SHARD:NAME": the shard's number, the service's name. It counts
  // as a descriptor and as a watch. With `network`, the name of a network of another service (a
  // port), the socket is on that network, and its memory and descriptors are planned by that
  // service. With `opening` the runtime opens a kernel socket before anything is taken, like a
  // listening socket; see ServiceContext::open_datagram_socket. Without `opening` the service opens
  // it in create(): an error there ends a boot that has taken all its memory.
  void datagram_socket(uint32_t shard, const char* name, const DatagramShape& shape,
                       std::string_view network = "",
                       std::optional<DatagramOpening> opening = std::nullopt);

  // TLS for the connections of `shard`, at most `connection_count`, for ServiceContext::tls: the
  // memory of their layers and of OpenSSL, a poll source, the counters ("tls"). The runtime reads
  // `files` (tls_keys.h describes their keys), the same for each shard, before the service's
  // prepare(); their problems are in its one report. Without files there is no TLS, and nothing is
  // planned. Each shard is planned once, before listen(), which then knows that clients may speak
  // TLS.
  void tls(uint32_t shard, uint32_t connection_count, const TlsFiles& files,
           const TlsTerms& terms = {});

  // Sockets that the runtime opens before anything is taken, and closes, for
  // ServiceContext::listeners. The first process of an image opens `in_image` instead, unless it is
  // empty. With TLS planned by tls(), `terms` need not say so. A service serves this machine alone
  // if terms.local_only says so, or if it has no TLS and plain_text() is not kAllowed. Then an
  // address in either list that others can reach is refused here; Listeners::open refuses such a
  // passed socket. Without TLS and with plain_text() kRefused, every address is refused. Each key
  // is planned once.
  void listen(const char* key, const std::vector<SocketAddress>& addresses,
              const std::vector<SocketAddress>& in_image = {}, const ListenTerms& terms = {});
  // The key "plain_text" of its table; kLocal without the key. The runtime describes the key in
  // each table with addresses.
  PlainText plain_text() const;

  static constexpr size_t kFileCountMax = 1 << 16;  // of one service

  // A file that the runtime opens before anything is taken, and closes, for `shard` and
  // ServiceContext::file. It counts as a descriptor, and has counters of its own.
  void file(uint32_t shard, const FilePlan& plan);

  // The service exchanges messages on `shard`: ServiceContext::messenger.
  void messages(uint32_t shard);
  // The service handles a message that others know as "NAME.name", NAME being the service's; at
  // most kMessageNameMax bytes together. The runtime gives it a number: ServiceContext::message.
  void message(const char* name) { needs_.messages.push_back(needs_.name + "." + name); }

  // A struct of counters with a function describe(CounterTable&, Counters&);
  // ServiceContext::counters. `instance` names one of several such structs. `measured`:
  // CounterSet::measured.
  template <typename Counters>
  void counters(const char* name, std::string_view instance = "",
                std::vector<std::string> measured = {}) {
    counters({.owner = needs_.name,
              .name = name,
              .instance = std::string(instance),
              .bytes = sizeof(Counters),
              .counters = described_counters<Counters>(),
              .measured = std::move(measured)});
  }
  // The same, for a set described by hand.
  void counters(CounterSet set);
  // Such a struct for each of `shards`, for ServiceContext::shard_counters. One shard: a set
  // without an instance. Several: each has its shard's name as its instance, and all readers show
  // their sum, too, as the set without an instance; it alone raises alerts.
  template <typename Counters>
  void shard_counters(const char* name, const std::vector<uint32_t>& shards) {
    for (const uint32_t shard : shards) {
      if (find_shard(shard, "counters") == nullptr) return;
      counters(on_shard({.owner = needs_.name,
                         .name = name,
                         .instance = "",
                         .bytes = sizeof(Counters),
                         .counters = described_counters<Counters>()},
                        configuration_.shards[shard].name, shards.size()));
    }
  }

  // The service traces the stations of its requests, on all its shards: ServiceContext::trace. Call
  // it once.
  void trace(TraceDescription description);

  // A capability that it needs from create() on: CAP_NET_ADMIN, ... All others are dropped if the
  // runtime gives up root. CAP_SETUID and CAP_SETGID are refused if [appliance] user names a user.
  // Requires: 0..63.
  void capability(int number) {
    BP_REQUIRE(number >= 0 && number < 64, "service %s plans the capability %d: a CAP_* is 0..63",
               needs_.name.c_str(), number);
    needs_.capabilities |= uint64_t{1} << number;
  }

  // A PCI device that the service drives itself, by VFIO: "0000:03:00.0". Preflight checks that it
  // is available; in an image the first process binds it to vfio-pci. The pool is mapped for it
  // when ServiceContext::vfio gets its group.
  void vfio_device(const std::string& address);

  // A kernel module that it needs, and a file that it reads, by its path from the root: an image
  // contains them.
  void module(const char* name) { needs_.modules.push_back(name); }
  void image_file(const std::string& path) { needs_.image_files.push_back(path); }

  // Called by the runtime, once. Errors (kConfiguration): the first defect of the plan.
  Result<ServiceNeeds> take();

  bool is_valid() const noexcept;

 private:
  ShardNeeds* find_shard(uint32_t shard, const char* doing);
  DatagramNetwork* find_network(const std::string& doing, std::string_view name);
  void add_datagram_segments();
  void add_tls_carves();
  enum NameKind { kCarveNames, kDatagramNames, kFileNames, kCounterNames, kNameKindCount };
  // Whether the name is new among those of this kind.
  bool is_new(NameKind kind, std::string name) {
    return names_[kind].insert(std::move(name)).second;
  }
  bool check_counter(const CounterSet& set, const CounterDescription& counter);
  ListenTerms with_planned_tls(ListenTerms terms) const;
  LocalOnly local_only(const ListenTerms& terms) const;
  void refuse(const std::string& doing, const std::string& answer, const std::string& cure);

  const Configuration& configuration_;
  ServiceNeeds needs_;
  std::unordered_set<std::string> names_[kNameKindCount];
  bool is_refused_ = false;
  Error first_;
};

}  // namespace bedplate
