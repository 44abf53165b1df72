#include "apps/boot/service_context.h"

#include <algorithm>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/peers.h"
#include "apps/boot/runtime_counters.h"
#include "apps/counters/counters_file.h"
#include "apps/services/listeners.h"
#include "apps/services/tls_part.h"
#include "transport/sockets/datagram_network.h"
#include "transport/sockets/stream_layer.h"
#include "transport/udp/udp_socket.h"

namespace bedplate {

// The most connections that go on in one poll of a shard's TLS.
static constexpr uint32_t kTlsBudget = 64;

ServiceContext::ServiceContext(const ServiceNeeds& needs, const ServiceRuntime& runtime,
                               std::span<const Listeners> listeners, std::span<Fd> datagrams,
                               TlsServer* tls)
    : needs_(needs),
      runtime_(runtime),
      listeners_(listeners),
      source_counts_(runtime.shards.size()),
      askers_(runtime.shards.size()),
      datagrams_(datagrams),
      datagram_sockets_(needs.datagrams.size()),
      tls_(tls),
      layers_(needs.tls ? needs.tls->shards.size() : 0) {
  BP_DCHECK(needs.service != nullptr && needs.shards.size() == runtime.shards.size());
  BP_DCHECK(listeners.size() == needs.listens.size());
  BP_DCHECK(datagrams.size() == needs.datagrams.size());
  for (uint32_t shard = 0; shard < askers_.size(); ++shard) {
    askers_[shard].create(loop(shard), needs_.shards[shard].questions);
  }
}

bool ServiceContext::is_valid() const noexcept {
  for (size_t shard = 0; shard < source_counts_.size(); ++shard) {
    if (source_counts_[shard] > needs_.shards[shard].sources) return false;
  }
  const auto is_planned = [this](const OwnerName& owner) {
    const auto has_it = [&](const SegmentRequest& request) {
      return std::any_of(request.carves.begin(), request.carves.end(),
                         [&](const CarvePlan& carve) { return carve.owner == owner; });
    };
    return std::any_of(needs_.segments.begin(), needs_.segments.end(), has_it) &&
           std::count(carved_.begin(), carved_.end(), owner) == 1;
  };
  return udp_sockets_.size() <= needs_.datagrams.size() &&
         std::all_of(carved_.begin(), carved_.end(), is_planned);
}

ServiceContext::~ServiceContext() = default;

// The contract of `function`: there is a shard of this number.
void ServiceContext::require_shard(uint32_t shard, const char* function) const noexcept {
  BP_REQUIRE(shard < shard_count(),
             "service %s asks for shard number %u, and there are %u: ServiceContext::%s",
             needs_.name.c_str(), shard, shard_count(), function);
}

// The contract of `function`: create() alone calls it.
void ServiceContext::require_unsealed(const char* function) const noexcept {
  BP_REQUIRE(!runtime_.pool.is_sealed(),
             "service %s calls ServiceContext::%s after create(), and the pool is sealed",
             needs_.name.c_str(), function);
}

EventLoop& ServiceContext::loop(uint32_t shard) noexcept {
  require_shard(shard, "loop");
  return runtime_.shards[shard].loop;
}

StreamSockets& ServiceContext::sockets(uint32_t shard) noexcept {
  require_shard(shard, "sockets");
  return runtime_.shards[shard].sockets;
}

Error ServiceContext::defect(const std::string& doing, const char* answer) const {
  return error_while("%s: %s", needs_.name.c_str(), doing.c_str())
      .set_answer("%s", answer)
      .set_cure("this is a defect of the service: plan() must ask for all that create() uses");
}

Result<std::span<std::byte>> ServiceContext::carve(const OwnerName& owner) {
  require_unsealed("carve");
  BP_KEEPS_VALID(*this);
  const std::string doing = "carving " + std::string(owner.view());
  if (std::find(carved_.begin(), carved_.end(), owner) != carved_.end()) {
    return defect(doing, "it was handed out before");
  }
  for (const SegmentRequest& request : needs_.segments) {
    for (const CarvePlan& carve : request.carves) {
      if (!(carve.owner == owner)) continue;
      carved_.push_back(owner);
      Segment& segment = *runtime_.pool.find_segment(request.owner);
      return runtime_.pool.carve(segment, owner, carve.bytes);
    }
  }
  return defect(doing, "it is not planned");
}

Result<void> ServiceContext::add_source(uint32_t shard, PollSource& source, uint32_t budget) {
  require_shard(shard, "add_source");
  require_unsealed("add_source");
  BP_KEEPS_VALID(*this);
  if (source_counts_[shard] == needs_.shards[shard].sources) {
    return defect("adding a poll source to shard " + runtime_.configuration.shards[shard].name,
                  "it has planned no further one there");
  }
  ++source_counts_[shard];
  const std::string part = source_instance(runtime_.configuration.shards[shard].name, needs_.name);
  loop(shard).add_source(source, budget, needs_.name.c_str(),
                         &runtime_.counters.runtime<SourceCounters>("source", part));
  return {};
}

Result<ShardAsker*> ServiceContext::asker(uint32_t shard) noexcept {
  require_shard(shard, "asker");
  if (needs_.shards[shard].questions > 0) return &askers_[shard];
  return defect("asking questions on shard " + runtime_.configuration.shards[shard].name,
                "it has planned none there");
}

Result<DatagramSocket*> ServiceContext::datagram_socket(std::string_view name) {
  require_unsealed("datagram_socket");
  BP_KEEPS_VALID(*this);
  const std::string doing = "creating the datagram socket " + std::string(name);
  const auto is_it = [name](const DatagramNeed& need) { return need.name == name; };
  const auto need = std::find_if(needs_.datagrams.begin(), needs_.datagrams.end(), is_it);
  if (need == needs_.datagrams.end()) return defect(doing, "it is not planned");
  DatagramSocket*& socket = datagram_sockets_[static_cast<size_t>(need - needs_.datagrams.begin())];
  if (socket != nullptr) return defect(doing, "it was handed out before");
  if (need->network != nullptr) {
    auto made = need->network->make_socket(need->shard, need->shape);
    if (made.ok()) return socket = made.value();
    return Error{made.error()}.set_doing("%s: %s", needs_.name.c_str(), doing.c_str());
  }
  BP_TRY_ASSIGN(const auto memory, carve(need->owner));
  udp_sockets_.push_back(std::make_unique<UdpSocket>(sockets(need->shard), memory, need->shape));
  return socket = udp_sockets_.back().get();
}

Result<void> ServiceContext::open_datagram_socket(std::string_view name,
                                                  const DatagramOwner& owner) {
  require_unsealed("open_datagram_socket");
  BP_REQUIRE(owner.received != nullptr,
             "service %s opens the datagram socket %.*s without a function for what is received: "
             "DatagramOwner::received",
             needs_.name.c_str(), static_cast<int>(name.size()), name.data());
  const std::string doing = "opening the datagram socket " + std::string(name);
  for (size_t i = 0; i < needs_.datagrams.size(); ++i) {
    const DatagramNeed& need = needs_.datagrams[i];
    if (need.name != name) continue;
    if (datagram_sockets_[i] == nullptr) return defect(doing, "it was not handed out");
    if (!need.opening) return defect(doing, "it is planned without a DatagramOpening");
    if (datagram_sockets_[i]->is_open()) return defect(doing, "it was opened before");
    return open_planned(*datagram_sockets_[i], *need.opening, owner, std::move(datagrams_[i]));
  }
  return defect(doing, "it is not planned");
}

Result<std::span<const Fd>> ServiceContext::listeners(std::string_view key) const {
  const std::string doing = "listening at the addresses of " + std::string(key);
  for (size_t i = 0; i < needs_.listens.size(); ++i) {
    if (needs_.listens[i].key != key) continue;
    if (needs_.listens[i].place_count() == 1) return std::span<const Fd>(listeners_[i].sockets());
    return defect(doing, "they are planned for several shards");
  }
  return defect(doing, "they are not planned");
}

Result<std::span<const Fd>> ServiceContext::listeners(std::string_view key, uint32_t shard) const {
  require_shard(shard, "listeners");
  for (size_t i = 0; i < needs_.listens.size(); ++i) {
    const std::vector<uint32_t>& shards = needs_.listens[i].shards;
    const auto place = std::find(shards.begin(), shards.end(), shard);
    if (needs_.listens[i].key != key || place == shards.end()) continue;
    return std::span<const Fd>(listeners_[i].sockets(static_cast<size_t>(place - shards.begin())));
  }
  return defect("listening at the addresses of " + std::string(key) + " on shard " +
                    runtime_.configuration.shards[shard].name,
                "they are not planned there");
}

Result<StreamLayers*> ServiceContext::tls(uint32_t shard) {
  require_shard(shard, "tls");
  require_unsealed("tls");
  BP_KEEPS_VALID(*this);
  const std::string doing = "taking TLS for shard " + runtime_.configuration.shards[shard].name;
  const auto has_it = [shard](const TlsShardNeed& need) { return need.shard == shard; };
  if (!needs_.tls) return defect(doing, "it is not planned");
  const std::vector<TlsShardNeed>& all = needs_.tls->shards;
  const auto need = std::find_if(all.begin(), all.end(), has_it);
  if (need == all.end()) return defect(doing, "it is not planned there");
  if (needs_.tls->files.is_empty()) return nullptr;
  std::unique_ptr<StreamLayers>& layers = layers_[static_cast<size_t>(need - all.begin())];
  if (layers != nullptr) return defect(doing, "it was handed out before");
  BP_ASSERT(tls_ != nullptr);
  BP_TRY_ASSIGN(const auto memory, carve(need->streams));
  BP_TRY_ASSIGN(const auto counted, counters<TlsCounters>(kTlsCounters, need->counters));
  const PlainText plain_text = needs_.tls->plain_text;
  const auto use_if = [](bool may_be_plain) {
    return may_be_plain ? LayerUse::kOffered : LayerUse::kRequired;
  };
  layers = tls_->make_layers({.sockets = &sockets(shard),
                              .counters = counted,
                              .memory = memory,
                              .local = use_if(plain_text != PlainText::kRefused),
                              .elsewhere = use_if(plain_text == PlainText::kAllowed),
                              .handshake_ns_max = need->handshake_ns_max});
  return layers.get();
}

Result<void> ServiceContext::created() {
  if (!needs_.tls || needs_.tls->files.is_empty()) return {};
  for (size_t i = 0; i < layers_.size(); ++i) {
    const uint32_t shard = needs_.tls->shards[i].shard;
    if (layers_[i] == nullptr) {
      return error_while("%s: serving connections on shard %s", needs_.name.c_str(),
                         runtime_.configuration.shards[shard].name.c_str())
          .set_answer("they would have no TLS, which is planned")
          .set_cure("this is a defect of the service: create() must give ServiceContext::tls() to "
                    "its server");
    }
    BP_TRY(add_source(shard, *layers_[i], kTlsBudget));
  }
  return {};
}

Result<File*> ServiceContext::file(std::string_view name) const {
  for (const FileNeed& need : needs_.files) {
    if (need.plan.name != name) continue;
    File* file = runtime_.shards[need.shard].files.find(file_name(needs_.name, need.plan));
    BP_ASSERT(file != nullptr);
    BP_DCHECK(need.shard < shard_count());
    return file;
  }
  return defect("finding its file " + std::string(name), "it is not planned");
}

CountersView ServiceContext::all_counters() const noexcept { return runtime_.counters.view(); }

Result<TraceWriter> ServiceContext::trace(uint32_t shard) const {
  require_shard(shard, "trace");
  const auto& sources = runtime_.plan.traces.sources;
  const auto is_it = [this](const auto& source) { return source.service == needs_.name; };
  const auto found = std::find_if(sources.begin(), sources.end(), is_it);
  if (found == sources.end()) return defect("tracing its requests", "it has planned no traces");
  return TraceWriter(runtime_.shards[shard].trace_ring,
                     static_cast<uint8_t>(found - sources.begin()));
}

Result<void*> ServiceContext::counter_memory(std::string_view name, std::string_view instance,
                                             size_t bytes) {
  for (const CounterSet& set : needs_.counters) {
    if (set.name != name || set.instance != instance || set.bytes != bytes) continue;
    if (set.role == CounterSetRole::kSum) {
      return defect("finding its counters " + std::string(name), "each shard has its own");
    }
    return runtime_.counters.values(set);
  }
  return defect("finding its counters " + std::string(name), "they are not planned");
}

// The instance of the set `name` of a shard; empty: only one shard has such a set.
std::string_view ServiceContext::shard_instance(std::string_view name,
                                                uint32_t shard) const noexcept {
  require_shard(shard, "shard_counters");
  const auto is_one = [name](const CounterSet& set) {
    return set.name == name && set.role == CounterSetRole::kOfShard;
  };
  if (std::none_of(needs_.counters.begin(), needs_.counters.end(), is_one)) return {};
  return runtime_.configuration.shards[shard].name;
}

void ServiceContext::set_label(std::string_view name, std::string_view instance,
                               std::string_view label, std::string_view value) noexcept {
  runtime_.counters.set_label(name, instance, label, value, needs_.name);
}

Result<Messenger*> ServiceContext::messenger(uint32_t shard) noexcept {
  require_shard(shard, "messenger");
  const std::string& name = runtime_.configuration.shards[shard].name;
  if (!needs_.shards[shard].has_messages) {
    return defect("exchanging messages on shard " + name, "it has planned none there");
  }
  BP_DCHECK(runtime_.shards[shard].messenger != nullptr);  // make_messengers() reads the same needs
  return runtime_.shards[shard].messenger;
}

Result<AmId> ServiceContext::message(std::string_view name) const {
  const std::string whole = needs_.name + "." + std::string(name);
  if (const auto number = runtime_.message_names.find(whole)) return *number;
  return defect("finding the number of its message " + whole, "it is not planned");
}

bool ServiceContext::has_peers() const noexcept { return runtime_.peers.is_there(); }

VerbsProvider* ServiceContext::peer_datagrams() noexcept { return runtime_.peers.datagrams(); }

KeyedRange ServiceContext::key(const void* memory, uint64_t bytes) const noexcept {
  return runtime_.peers.key(memory, bytes);
}

ibv_pd* ServiceContext::verbs_domain() const noexcept { return runtime_.peers.domain(); }

std::span<std::byte> ServiceContext::exported(std::string_view name) const noexcept {
  return runtime_.peers.exported(name);
}

}  // namespace bedplate
