// The context of a service (Service::create): it hands out the memory, sockets, files and counters
// that the service has planned, by their names in the plan, and the shards.
//
// It lives as long as the appliance's loops, and so do the objects that it hands out by reference
// or pointer. Threads: the main thread, in create(), unless another is named; an object that it
// handed out belongs to its shard from then on. Errors are of kind kSystem and name the service:
// they are the service's defects.
//
// Invariants, checked by each function that hands something out: 1. A carve that was handed out was
// planned, and is handed out once. 2. No shard has more sources of this service than were planned.
// 3. The service has no more kernel datagram sockets than were planned. (is_valid) 4. Memory,
// sources and sockets are handed out before the seal. (carve, add_source, datagram_socket)
#pragma once

#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <vector>

#include "apps/services/service_plan.h"
#include "platform/file.h"
#include "platform/trace_ring.h"
#include "transport/files/files.h"
#include "transport/loop/event_loop.h"
#include "transport/loop/shard_question_datapath.h"
#include "transport/messages/messenger.h"
#include "transport/registration.h"
#include "transport/sockets/stream_sockets.h"

struct ibv_pd;

namespace bedplate {

struct AppliancePlan;
class CountersFile;
class CountersView;
class Listeners;
class Peers;
class PinnedPool;
class ServiceDrains;
class StreamLayers;
class TlsServer;
class UdpSocket;
class VerbsProvider;
class VfioPool;

// The parts of a shard that are lent to services: those of boot/shard.h, or of a test.
struct ShardParts {
  EventLoop& loop;
  StreamSockets& sockets;
  Files& files;
  TraceRing* trace_ring = nullptr;  // nullptr: no traces are kept
  Messenger* messenger = nullptr;   // nullptr: nobody exchanges messages on this shard
};

// The parts of the runtime that are lent to all services.
struct ServiceRuntime {
  const Configuration& configuration;
  const AppliancePlan& plan;
  PinnedPool& pool;
  std::span<const ShardParts> shards;
  const MessageNames& message_names;
  CountersFile& counters;
  Peers& peers;
  VfioPool& vfio;
  ServiceDrains& drains;
};

class ServiceContext {
 public:
  // `listeners`: one element for each of needs.listens; `datagrams`: one for each of
  // needs.datagrams (open_datagrams()); `tls`: of the service (load_planned_tls()), nullptr: none.
  ServiceContext(const ServiceNeeds& needs, const ServiceRuntime& runtime,
                 std::span<const Listeners> listeners, std::span<Fd> datagrams,
                 TlsServer* tls = nullptr);
  ServiceContext(const ServiceContext&) = delete;
  ServiceContext& operator=(const ServiceContext&) = delete;
  ~ServiceContext();

  const Configuration& configuration() const noexcept { return runtime_.configuration; }
  // The plan of the runtime and all services together (boot/appliance_plan.h).
  const AppliancePlan& appliance_plan() const noexcept { return runtime_.plan; }

  // ---- Memory ----

  // The carve that was planned as `owner`: zeroed, pinned, and registered with every device if the
  // segment is for devices. Call it once for each carve. Ownership: the service's, for ever.
  // Errors: it was not planned, or was handed out before.
  Result<std::span<std::byte>> carve(const OwnerName& owner);

  // The container for the service's PCI devices (ServicePlan::vfio_device). In create() the service
  // puts their groups into it: the devices then reach the whole pool, at its own addresses. All
  // services share the container.
  VfioPool& vfio() noexcept { return runtime_.vfio; }

  // ---- Shards, by their index among [[shard]]. Before the seal ----

  uint32_t shard_count() const noexcept { return static_cast<uint32_t>(runtime_.shards.size()); }
  // Requires, here and below: `shard` exists.
  EventLoop& loop(uint32_t shard) noexcept;
  StreamSockets& sockets(uint32_t shard) noexcept;
  // Lets the loop of `shard` poll `source`, which outlives the loop, with about `budget` items
  // (over 0) at most in one poll. Errors: more sources than were planned.
  Result<void> add_source(uint32_t shard, PollSource& source, uint32_t budget);

  // Asks any shard questions from `shard`, on that shard's thread, from start() on. Ownership: the
  // context's; always the same one. Errors: the service has planned no questions there.
  Result<ShardAsker*> asker(uint32_t shard) noexcept;

  // The datagram socket that was planned as `name`, not open yet, for its shard. Call it once for
  // each socket. Ownership: the runtime's, for ever. Errors: it was not planned, or was handed out
  // before; on a network, DatagramNetwork::make_socket's.
  Result<DatagramSocket*> datagram_socket(std::string_view name);
  // Opens the socket and joins its groups, as planned; `owner` gets the datagrams. Errors: the
  // socket is not planned, was not handed out, is planned without an address to open, or was opened
  // before; the socket's, as open_planned() says.
  Result<void> open_datagram_socket(std::string_view name, const DatagramOwner& owner);

  // The listening sockets that were planned under `key`, in the order of its addresses; the runtime
  // closes them. Errors: none were planned, or those of several shards.
  Result<std::span<const Fd>> listeners(std::string_view key) const;
  // Those of one of the shards that they were planned for (ListenTerms::shards): of the first shard
  // all, of any other those of TCP addresses. Errors: none were planned for this shard.
  Result<std::span<const Fd>> listeners(std::string_view key, uint32_t shard) const;

  // TLS for the connections of `shard`, for StreamServerOptions::layers; nullptr: the configuration
  // has no keys for it. plain_text says on which listeners clients need not speak it. The loop
  // polls it behind the service's own sources. Call it once for each shard. Errors: it was not
  // planned, or was handed out before.
  Result<StreamLayers*> tls(uint32_t shard);

  // The file that was planned as `name`, open; its operations begin on its shard's thread, from
  // start() on. Errors: it was not planned.
  Result<File*> file(std::string_view name) const;

  // ---- Counters ----

  // The struct that was planned under this name and instance, in the counters file, zeroed by each
  // call. Ownership: the runtime's, for as long as shards run. Errors: no struct of this name,
  // instance and size is planned.
  template <typename Counters>
  Result<Counters*> counters(const char* name, std::string_view instance = "") {
    auto memory = counter_memory(name, instance, sizeof(Counters));
    if (!memory.ok()) return memory.error();
    return new (memory.value()) Counters;
  }
  // The one of `shard` that was planned by ServicePlan::shard_counters. Errors: the same.
  template <typename Counters>
  Result<Counters*> shard_counters(const char* name, uint32_t shard) {
    return counters<Counters>(name, shard_instance(name, shard));
  }
  // Sets a label of one of the service's sets (CounterSet::labels). Before the seal. Requires: the
  // label is planned.
  void set_label(std::string_view name, std::string_view instance, std::string_view label,
                 std::string_view value) noexcept;
  // All counters of the appliance, of the runtime and of every service, as a reader of its file
  // sees them. Any thread may read them, from the seal until Service::stopped().
  CountersView all_counters() const noexcept;
  // The drains of all services of the appliance, with their progress.
  ServiceDrains& drains() noexcept { return runtime_.drains; }
  // The writer of traces of the service's requests that end on `shard`, into that shard's ring
  // (docs/trace.md). It writes nothing if [appliance] trace_requests = 0. Errors: the service has
  // planned no traces.
  Result<TraceWriter> trace(uint32_t shard) const;
  // The memory of the struct that counters() returns, left as it is. Errors: as counters().
  Result<void*> counter_memory(std::string_view name, std::string_view instance, size_t bytes);

  // ---- Messages: to this shard, another one, another process, another host ----

  // The messenger of `shard`; handlers are set in create(). It finds shards and peers by their
  // names at once; processes only from start() on, since none joins before. Errors: the service has
  // planned no messages on this shard.
  Result<Messenger*> messenger(uint32_t shard) noexcept;
  // The number of the service's own message `name`. Errors: it is not planned.
  Result<AmId> message(std::string_view name) const;

  // ---- Other appliances, over [verbs] (docs/verbs.md) ----

  // Whether peers can be reached through the messenger of the shard that [verbs] names: there is a
  // device. Threads, of this function and the next two: any, from create() on.
  bool has_peers() const noexcept;
  // The provider that sends datagrams to peers (VerbsProvider::send_datagram), on that shard;
  // nullptr: no device, or [verbs] datagrams = 0.
  VerbsProvider* peer_datagrams() noexcept;
  // The memory of [[verbs.export]] `name`, even without a device; empty: no such export.
  std::span<std::byte> exported(std::string_view name) const noexcept;
  // For services with queue pairs of their own: the key of [memory, memory + bytes) for the same
  // device, and how many of the bytes it covers; kNoKey: no device, or not memory of the pool for
  // devices. VerbsDevice::local_key() makes the lkey of it. Other devices need no key: a device of
  // vfio() uses the pool's own addresses, and sockets and files find the keys themselves. Threads:
  // any. Cost: a virtual call, and KeyTable::key()'s.
  KeyedRange key(const void* memory, uint64_t bytes) const noexcept;
  // The protection domain that the keys belong to; nullptr: no device. Ownership: the runtime's.
  ibv_pd* verbs_domain() const noexcept;

  // Ends create(), for the runtime: adds the sources of TLS. Errors: the service has planned TLS,
  // and has not taken it, so its connections would be in clear.
  Result<void> created();

  bool is_valid() const noexcept;

 private:
  Error defect(const std::string& doing, const char* answer) const;
  std::string_view shard_instance(std::string_view name, uint32_t shard) const noexcept;
  void require_shard(uint32_t shard, const char* function) const noexcept;
  void require_unsealed(const char* function) const noexcept;

  const ServiceNeeds& needs_;
  ServiceRuntime runtime_;
  std::span<const Listeners> listeners_;
  std::vector<OwnerName> carved_;
  std::vector<uint32_t> source_counts_;  // of each shard
  std::vector<ShardAsker> askers_;       // of each shard
  std::span<Fd> datagrams_;
  std::vector<DatagramSocket*> datagram_sockets_;  // of each that is planned; nullptr: not made
  std::vector<std::unique_ptr<UdpSocket>> udp_sockets_;
  TlsServer* const tls_;
  std::vector<std::unique_ptr<StreamLayers>> layers_;  // of each shard with TLS; nullptr: not made
};

}  // namespace bedplate
