#include "apps/services/service_plan.h"

#include <algorithm>

#include "alloc/confined_heap.h"
#include "apps/counters/counter_alerts.h"
#include "apps/counters/counters_file.h"
#include "apps/services/datagram_networks.h"
#include "apps/services/listeners.h"
#include "apps/services/service.h"
#include "apps/services/tls_part.h"
#include "platform/numa.h"
#include "platform/text.h"
#include "transport/sockets/datagram_network.h"
#include "transport/sockets/socket_thread.h"
#include "transport/tls/tls_counters.h"
#include "transport/tls/tls_credentials.h"
#include "transport/tls/tls_streams.h"
#include "transport/udp/udp_socket.h"
#include "transport/vfio/pci_device.h"

namespace bedplate {
namespace {

constexpr uint32_t kCountMax = 1U << 24;  // of anything: sums fit

bool is_counter_name(const std::string& name) noexcept {
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() < sizeof CounterRecord::name &&
         std::all_of(name.begin(), name.end(), is_good);
}

// Names of owners are shown in tables, in the log and after a crash.
bool is_owner_name(const OwnerName& owner) noexcept {
  const std::string_view name = owner.view();
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
  });
}

// Why the counter cannot have a column; nullptr: it can, or has none.
const char* defect_of_column(const CounterDescription& counter, const CounterSet& set) noexcept {
  const std::string& column = counter.column;
  const auto is_good = [](char c) { return c >= ' ' && c != '\x7f' && c != '"' && c != '\\'; };
  if (column.size() >= sizeof CounterRecord::column ||
      !std::all_of(column.begin(), column.end(), is_good)) {
    return "a column heading has 1..15 bytes, without quotes or backslashes";
  }
  if (!column.empty() &&
      (counter.kind == CounterKind::kText || counter.kind == CounterKind::kFlags)) {
    return "a text or flags cannot have a column";
  }
  const auto differs = [&](const CounterDescription& each) {
    return !column.empty() && each.column == column &&
           (each.kind != counter.kind || each.unit != counter.unit);
  };
  if (std::any_of(set.counters.begin(), set.counters.end(), differs)) {
    return "another counter of its column has a different kind or unit";
  }
  return nullptr;
}

// Whether other machines can reach it. A passed socket is checked when it is taken.
bool is_open_to_others(const SocketAddress& address) noexcept {
  return address.kind != SocketAddress::Kind::kActivation && !is_local_address(address);
}

bool is_tcp(const SocketAddress& address) noexcept {
  return address.kind == SocketAddress::Kind::kTcp4 || address.kind == SocketAddress::Kind::kTcp6;
}

// A record has 16 bits for its subject.
constexpr size_t kTraceSubjectMax = 1 << 16;

// Counts the words of "a|b|c"; 0: they are not as in TraceDescription.
size_t count_trace_words(std::string_view text) {
  if (text.size() >= sizeof TraceSourceRecord::kinds) return 0;
  size_t count = 1;
  for (size_t end = text.find('|'); end != text.npos; end = text.find('|'), ++count) {
    if (!is_counter_name(std::string(text.substr(0, end)))) return 0;
    text.remove_prefix(end + 1);
  }
  return is_counter_name(std::string(text)) ? count : 0;
}

}  // namespace

ServicePlan::ServicePlan(const Configuration& configuration, Service& service)
    : configuration_(configuration) {
  needs_.service = &service;
  needs_.name = service.name();
  needs_.shards.resize(configuration.shards.size());
}

bool ServicePlan::is_valid() const noexcept {
  if (needs_.shards.size() != configuration_.shards.size()) return false;
  if (is_refused_ && (first_.answer[0] == '\0' || first_.cure[0] == '\0')) return false;
  const auto count_carves = [this](const OwnerName& owner) {
    int64_t count = 0;
    for (const SegmentRequest& request : needs_.segments) {
      count += std::count_if(request.carves.begin(), request.carves.end(),
                             [&](const CarvePlan& carve) { return carve.owner == owner; });
    }
    return count;
  };
  for (const SegmentRequest& request : needs_.segments) {
    const auto is_good = [&](const CarvePlan& carve) {
      return carve.bytes > 0 && count_carves(carve.owner) == 1;
    };
    if (!std::all_of(request.carves.begin(), request.carves.end(), is_good)) return false;
  }
  for (const DatagramNeed& need : needs_.datagrams) {
    const auto is_same = [&](const DatagramNeed& other) { return other.name == need.name; };
    const auto count = std::count_if(needs_.datagrams.begin(), needs_.datagrams.end(), is_same);
    if (need.shard >= needs_.shards.size() || count != 1) return false;
  }
  return std::all_of(needs_.files.begin(), needs_.files.end(), [this](const FileNeed& need) {
    const auto is_same = [&](const FileNeed& other) { return other.plan.name == need.plan.name; };
    return need.shard < needs_.shards.size() &&
           std::count_if(needs_.files.begin(), needs_.files.end(), is_same) == 1;
  });
}

void ServicePlan::refuse(const std::string& doing, const std::string& answer,
                         const std::string& cure) {
  BP_DCHECK(!answer.empty() && !cure.empty());
  if (is_refused_) return;
  is_refused_ = true;
  first_.kind = ErrorKind::kConfiguration;
  first_.set_doing("%s: planning %s", needs_.name.c_str(), doing.c_str());
  first_.set_answer("%s", answer.c_str());
  first_.set_cure("%s", cure.c_str());
}

Result<ServiceNeeds> ServicePlan::take() {
  BP_DCHECK_SLOW(is_valid());
  add_tls_carves();
  add_datagram_segments();
  add_sums(&needs_.counters);
  if (is_refused_) return first_;
  return std::move(needs_);
}

ShardNeeds* ServicePlan::find_shard(uint32_t shard, const char* doing) {
  if (shard < needs_.shards.size()) return &needs_.shards[shard];
  refuse(std::string(doing) + " on shard number " + std::to_string(shard),
         "the configuration has " + std::to_string(needs_.shards.size()),
         "this is a defect of the service: it must take the index from a key of the type shard");
  return nullptr;
}

Placement ServicePlan::placement(uint32_t shard) {
  if (find_shard(shard, "memory") == nullptr) return {};
  return {configuration_.pool.pages, node_of_cpu(configuration_.shards[shard].cpu)};
}

void ServicePlan::segment(const OwnerName& owner, std::vector<CarvePlan> carves,
                          const Placement& placement, bool is_for_devices) {
  BP_KEEPS_VALID(*this);
  const auto has_name = [](const CarvePlan& carve) { return is_owner_name(carve.owner); };
  if (!is_owner_name(owner) || !std::all_of(carves.begin(), carves.end(), has_name)) {
    return refuse("a segment",
                  "the name of its owner, or of a carve's, is empty or has control "
                  "characters",
                  "this is a defect of the service");
  }
  const std::string doing = "the segment " + std::string(owner.view());
  const auto defect = [&](const std::string& answer) {
    refuse(doing, answer, "this is a defect of the service");
  };
  if (carves.empty()) return defect("it has no carve");
  for (const CarvePlan& carve : carves) {
    const std::string name(carve.owner.view());
    if (carve.bytes == 0 || carve.bytes % kCacheLineBytes != 0) {
      return defect("the carve " + name + " has " + std::to_string(carve.bytes) +
                    " bytes, not a multiple of 64");
    }
    if (is_new(kCarveNames, name)) continue;
    for (const SegmentRequest& request : needs_.segments) {
      const auto is_it = [&](const CarvePlan& other) { return other.owner == carve.owner; };
      if (std::any_of(request.carves.begin(), request.carves.end(), is_it)) {
        return defect("the carve " + name + " is planned already, in " +
                      std::string(request.owner.view()));
      }
    }
    return defect("the carve " + name + " appears twice");
  }
  needs_.segments.push_back({owner, std::move(carves), placement, is_for_devices});
}

void ServicePlan::kept_heap(const OwnerName& owner, uint64_t bytes, uint32_t thread_count) {
  BP_KEEPS_VALID(*this);
  if (!is_owner_name(owner) || !owner.view().starts_with("heap:")) {
    return refuse("heap memory for an owner", "it is not called heap:NAME",
                  "this is a defect of the service: its own is heap:" + needs_.name);
  }
  // A thread takes its pages from blocks of its own: the last block of each may be half empty.
  const uint64_t whole_bytes = align_up(bytes, kHeapGranularityBytes) +
                               (std::max(thread_count, 1U) - 1) * kHeapGranularityBytes;
  needs_.kept_heaps.push_back({owner, whole_bytes});
}

void ServicePlan::connections(uint32_t shard, uint32_t count, const char* key) {
  BP_KEEPS_VALID(*this);
  ShardNeeds* needs = find_shard(shard, "connections");
  if (needs == nullptr) return;
  needs->connections += std::min(count, kCountMax);
  descriptors(count, key);
}

void ServicePlan::descriptors(uint32_t count, const char* key) {
  BP_KEEPS_VALID(*this);
  needs_.descriptors += count;
  if (key == nullptr) return;
  const std::string text = std::string(key) + " in [" + needs_.name + "]";
  if (needs_.descriptor_keys.find(text) == std::string::npos) {
    add_word(&needs_.descriptor_keys, text);
  }
}

void ServicePlan::vfio_device(const std::string& address) {
  BP_KEEPS_VALID(*this);
  if (!is_pci_address(address)) {
    return refuse("the PCI device " + address, "this is not a PCI address",
                  "write it as lspci -D does: \"0000:03:00.0\"");
  }
  needs_.vfio_devices.push_back(address);
}

void ServicePlan::socket_thread(uint32_t connection_count, const char* key) {
  threads(1);
  descriptors(connection_count + SocketThread::kDescriptorCount, key);
  needs_.has_socket_thread = true;
}

void ServicePlan::timers(uint32_t shard, uint32_t count) {
  BP_KEEPS_VALID(*this);
  ShardNeeds* needs = find_shard(shard, "timers");
  if (needs != nullptr) needs->timers += std::min(count, kCountMax);
}

void ServicePlan::sources(uint32_t shard, uint32_t count) {
  BP_KEEPS_VALID(*this);
  ShardNeeds* needs = find_shard(shard, "poll sources");
  if (needs != nullptr) needs->sources += std::min(count, kCountMax);
}

void ServicePlan::watches(uint32_t shard, uint32_t count) {
  BP_KEEPS_VALID(*this);
  ShardNeeds* needs = find_shard(shard, "watches");
  if (needs != nullptr) needs->watches += std::min(count, kCountMax);
}

void ServicePlan::questions(uint32_t shard, uint32_t count) {
  BP_KEEPS_VALID(*this);
  ShardNeeds* needs = find_shard(shard, "questions");
  if (needs != nullptr) needs->questions += std::min(count, kCountMax);
}

// `doing` is for the error if there is no such network.
DatagramNetwork* ServicePlan::find_network(const std::string& doing, std::string_view name) {
  if (auto* found = find_datagram_network(configuration_, *needs_.service, name)) return found;
  refuse(doing, "this configuration has no network " + std::string(name),
         "name an existing one, such as a [[port]], or none to use the kernel's network");
  return nullptr;
}

void ServicePlan::datagram_socket(uint32_t shard, const char* name, const DatagramShape& shape,
                                  std::string_view network,
                                  std::optional<DatagramOpening> opening) {
  BP_KEEPS_VALID(*this);
  const std::string doing = std::string("the datagram socket ") + name;
  ShardNeeds* needs = find_shard(shard, doing.c_str());
  if (needs == nullptr) return;
  const char* defect = "this is a defect of the service";
  if (const char* wrong = UdpSocket::check_shape(shape)) return refuse(doing, wrong, defect);
  if (!is_new(kDatagramNames, name)) return refuse(doing, "it is planned already", defect);
  if (!network.empty()) {
    DatagramNetwork* found = find_network(doing, network);
    if (found == nullptr) return;
    if (auto planned = found->plan_socket(shard, shape); !planned.ok()) {
      return refuse(doing, planned.error().answer, planned.error().cure);
    }
    return needs_.datagrams.push_back({name, shard, shape, {}, found, std::move(opening)});
  }
  const std::string what = "datagrams-" + std::to_string(shard) + "-" + name;
  if (what.size() + 1 + needs_.name.size() >= sizeof OwnerName::text) {
    return refuse(doing, "its name is too long", defect);
  }
  needs_.datagrams.push_back(
      {name, shard, shape, OwnerName(what, needs_.name), nullptr, std::move(opening)});
  ++needs->watches;
  descriptors(1, nullptr);
}

// One segment for all datagram sockets of a shard: a pool has few segments.
void ServicePlan::add_datagram_segments() {
  BP_KEEPS_VALID(*this);
  for (uint32_t shard = 0; shard < needs_.shards.size(); ++shard) {
    std::vector<CarvePlan> carves;
    for (const DatagramNeed& need : needs_.datagrams) {
      if (need.shard != shard || need.network != nullptr) continue;
      carves.push_back({need.owner, need.shape.bytes()});
    }
    if (carves.empty()) continue;
    const OwnerName owner("datagrams-" + std::to_string(shard), needs_.name);
    segment(owner, std::move(carves), placement(shard));
  }
}

void ServicePlan::tls(uint32_t shard, uint32_t connection_count, const TlsFiles& files,
                      const TlsTerms& terms) {
  BP_KEEPS_VALID(*this);
  if (find_shard(shard, "TLS") == nullptr) return;
  const std::string doing = "TLS on shard " + configuration_.shards[shard].name;
  const auto defect = [&](const char* answer) {
    refuse(doing, answer, "this is a defect of the service");
  };
  const auto is_it = [shard](const TlsShardNeed& need) { return need.shard == shard; };
  if (!needs_.listens.empty()) return defect("its listeners were planned before");
  if (!needs_.tls) {
    needs_.tls.emplace();
    needs_.tls->files = files;
    needs_.tls->files.user = configuration_.appliance.user;
    needs_.tls->plain_text = plain_text();
    needs_.tls->heap_owner =
        terms.heap_owner == nullptr ? "heap:tls-" + needs_.name : terms.heap_owner;
    for (const std::string* path :
         {&files.certificate, &files.key, &files.client_authorities, &files.shared_keys}) {
      if (!path->empty()) image_file(*path);
    }
  } else if (std::any_of(needs_.tls->shards.begin(), needs_.tls->shards.end(), is_it)) {
    return defect("it is planned already");
  }
  const bool is_first = needs_.tls->shards.empty();
  const std::string what = is_first ? "tls" : "tls-" + std::to_string(shard);
  needs_.tls->shards.push_back({shard, connection_count, OwnerName(what, needs_.name),
                                terms.counters, terms.handshake_ns_max});
  if (files.is_empty()) return;
  if (tls_part() == nullptr) {
    return refuse(doing, "this program has no TLS linked in",
                  "link it with bedplate-tls (pkg-config; CMake: Bedplate::tls)");
  }
  counters({.owner = needs_.name,
            .name = kTlsCounters,
            .instance = terms.counters,
            .bytes = sizeof(TlsCounters),
            .counters = described_counters<TlsCounters>(),
            .role = terms.are_summed ? CounterSetRole::kOfShard : CounterSetRole::kAlone});
  kept_heap(OwnerName(needs_.tls->heap_owner), TlsCredentials::heap_bytes(connection_count),
            static_cast<uint32_t>(configuration_.shards.size()));
  sources(shard, 1);
}

// Adds them to a segment that the service has near the shard anyway: a pool has few segments.
void ServicePlan::add_tls_carves() {
  BP_KEEPS_VALID(*this);
  if (!needs_.tls || needs_.tls->files.is_empty()) return;
  for (const TlsShardNeed& need : needs_.tls->shards) {
    const CarvePlan carve = {need.streams, TlsStreams::bytes_for(need.connection_count)};
    const Placement wish = placement(need.shard);
    const auto is_near = [&wish](const SegmentRequest& request) {
      return request.is_for_devices && request.placement.pages == wish.pages &&
             request.placement.node == wish.node;
    };
    const auto there = std::find_if(needs_.segments.begin(), needs_.segments.end(), is_near);
    if (there == needs_.segments.end()) {
      segment(need.streams, {carve}, wish);
    } else if (is_new(kCarveNames, std::string(carve.owner.view()))) {
      there->carves.push_back(carve);
    } else {
      refuse("the memory of TLS", "the carve " + std::string(carve.owner.view()) + " is planned",
             "this is a defect of the service");
    }
  }
}

void ServicePlan::messages(uint32_t shard) {
  BP_KEEPS_VALID(*this);
  ShardNeeds* needs = find_shard(shard, "messages");
  if (needs != nullptr) needs->has_messages = true;
}

PlainText ServicePlan::plain_text() const {
  const auto said = configuration_.plain_text.find(needs_.name);
  return said == configuration_.plain_text.end() ? PlainText::kLocal : said->second;
}

ListenTerms ServicePlan::with_planned_tls(ListenTerms terms) const {
  if (!needs_.tls || terms.encryption != Encryption::kNone) return terms;
  if (!needs_.tls->files.is_empty()) {
    terms.encryption = Encryption::kOffered;
  } else if (terms.tls_cure.empty() && tls_part() != nullptr) {
    terms.tls_cure = "set tls_certificate or tls_shared_keys in [" + needs_.name + "]";
  }
  return terms;
}

LocalOnly ServicePlan::local_only(const ListenTerms& terms) const {
  if (terms.local_only.is_asked()) return terms.local_only;
  if (terms.encryption != Encryption::kNone || plain_text() == PlainText::kAllowed) return {};
  const std::string cure =
      terms.tls_cure.empty() ? "listen at tcp:127.0.0.1:PORT or unix:PATH" : terms.tls_cure;
  return {
      "other machines can reach it, and there is no TLS",
      cure + "; or, in a trusted network, set plain_text = \"allowed\" in [" + needs_.name + "]"};
}

void ServicePlan::listen(const char* key, const std::vector<SocketAddress>& addresses,
                         const std::vector<SocketAddress>& in_image, const ListenTerms& terms) {
  BP_KEEPS_VALID(*this);
  const ListenTerms known = with_planned_tls(terms);
  const auto is_it = [key](const ListenNeed& need) { return need.key == key; };
  if (std::any_of(needs_.listens.begin(), needs_.listens.end(), is_it)) {
    return refuse(std::string("the addresses of ") + key, "they are planned already",
                  "this is a defect of the service");
  }
  if (known.encryption == Encryption::kNone && plain_text() == PlainText::kRefused) {
    return refuse(std::string("to listen, with plain_text = \"refused\" in [") + needs_.name + "]",
                  "no client could be served: there is no TLS",
                  known.tls_cure.empty() ? "leave the key out" : known.tls_cure);
  }
  for (size_t i = 0; i < known.shards.size(); ++i) {
    const auto at = known.shards.begin() + static_cast<ptrdiff_t>(i);
    if (find_shard(known.shards[i], "listeners") == nullptr) return;
    if (std::find(known.shards.begin(), at, known.shards[i]) == at) continue;
    return refuse(std::string("the addresses of ") + key, "a shard appears twice",
                  "this is a defect of the service");
  }
  const LocalOnly local_only = this->local_only(known);
  for (const auto* each : {&addresses, &in_image}) {
    const auto open = std::find_if(each->begin(), each->end(), &is_open_to_others);
    if (open == each->end() || !local_only.is_asked()) continue;
    return refuse("to listen at " + open->text(), local_only.answer, local_only.cure);
  }
  ListenNeed& need = needs_.listens.emplace_back(
      ListenNeed{key, listened_addresses(configuration_, addresses, in_image), local_only,
                 known.access, known.shards});
  if (known.access.is_restricted) need.access.user = configuration_.appliance.user;
  const auto tcp_count = std::count_if(need.addresses.begin(), need.addresses.end(), &is_tcp);
  descriptors(static_cast<uint32_t>((need.place_count() - 1) * static_cast<size_t>(tcp_count)),
              nullptr);
}

void ServicePlan::file(uint32_t shard, const FilePlan& plan) {
  BP_KEEPS_VALID(*this);
  if (is_refused_ || find_shard(shard, "a file") == nullptr) return;
  if (needs_.files.size() == kFileCountMax) {
    return refuse("its files", "there are more than " + std::to_string(kFileCountMax),
                  plan.key.empty()
                      ? "use fewer"
                      : "use fewer of those that " + plan.key + " names in [" + needs_.name + "]");
  }
  const std::string doing = "the file " + (plan.name.empty() ? "without a name" : plan.name);
  const char* defect = defect_of(plan);
  if (!is_new(kFileNames, plan.name)) defect = "another one has this name";
  if (defect != nullptr) return refuse(doing, defect, "this is a defect of the service");
  if (plan.path.empty() || plan.path[0] != '/') {
    return refuse(doing, "its path is \"" + plan.path + "\"",
                  "expected a path that begins with /" +
                      (plan.key.empty() ? "" : ": see " + plan.key + " in [" + needs_.name + "]"));
  }
  needs_.files.push_back({shard, plan});
  descriptors(1, plan.key.empty() ? nullptr : plan.key.c_str());
  counters<FileCounters>(kFileCounters, plan.name);
}

void ServicePlan::trace(TraceDescription description) {
  BP_KEEPS_VALID(*this);
  const auto defect = [this](const std::string& answer) {
    refuse("its traces", answer,
           "this is a defect of the service: apps/counters/trace_table.h says what is allowed");
  };
  if (needs_.trace) return defect("it is planned already");
  const auto station_count = count_trace_words(description.stations);
  if (count_trace_words(description.kinds) == 0) {
    return defect("its kinds are \"" + description.kinds + "\"");
  }
  if (station_count < 2 || station_count > kTraceStationMax + 1) {
    return defect("its stations are \"" + description.stations + "\"");
  }
  if (description.subjects.size() > kTraceSubjectMax) {
    return defect("it has " + std::to_string(description.subjects.size()) + " subjects");
  }
  needs_.trace = std::move(description);
}

bool ServicePlan::check_counter(const CounterSet& set, const CounterDescription& counter) {
  const auto defect = [&](const std::string& answer) {
    refuse("the counter " + (counter.name.empty() ? "without a name" : counter.name), answer,
           "this is a defect of the service: platform/counter_table.h says what a counter needs");
    return false;
  };
  if (!is_counter_name(counter.name))
    return defect("a name has 1..47 characters of a-z, 0-9 and _");
  if (counter.unit.empty() || counter.unit.size() >= sizeof CounterRecord::unit) {
    return defect("a counter needs a unit of 1..15 bytes");
  }
  if (counter.help.empty() || counter.help.size() >= sizeof CounterRecord::help) {
    return defect("a counter needs a help sentence of 1..159 bytes");
  }
  if (counter.words.size() >= sizeof CounterRecord::words) {
    return defect("the words of a state or of flags have at most 159 bytes together");
  }
  if (const char* answer = defect_of_column(counter, set)) return defect(answer);
  if (counter.offset % sizeof(Counter) != 0 ||
      counter.offset + bytes_of(counter.kind) > set.bytes) {
    return defect("it does not lie in its struct");
  }
  if (const char* answer = defect_of(counter.alert, set)) return defect(answer);
  // Sets without an instance are shown as one set; those of shards have such a sum.
  const auto is_of_service = [](const CounterSet& one) {
    return one.instance.empty() || one.role == CounterSetRole::kOfShard;
  };
  const auto has_it = [&](const CounterSet& other) {
    return is_of_service(other) && other.name != set.name &&
           std::any_of(other.counters.begin(), other.counters.end(),
                       [&](const CounterDescription& each) { return each.name == counter.name; });
  };
  const auto is_same = [&](const CounterDescription& each) { return each.name == counter.name; };
  if ((is_of_service(set) && std::any_of(needs_.counters.begin(), needs_.counters.end(), has_it)) ||
      std::count_if(set.counters.begin(), set.counters.end(), is_same) > 1) {
    return defect("another one has this name");
  }
  return true;
}

void ServicePlan::counters(CounterSet set) {
  BP_KEEPS_VALID(*this);
  if (!is_new(kCounterNames, set.name + '\n' + set.instance)) {
    return refuse("the counters " + set.name + (set.instance.empty() ? "" : " of ") + set.instance,
                  "they are planned already", "this is a defect of the service");
  }
  if (set.name.size() >= sizeof OwnerName::text || set.instance.size() >= sizeof OwnerName::text) {
    return refuse("the counters " + set.name, "the name or the instance's name is too long",
                  "expected at most 63 bytes");
  }
  const bool is_checked = !needs_.counters.empty() && !set.instance.empty() &&
                          needs_.counters.back().name == set.name &&
                          needs_.counters.back().bytes == set.bytes &&
                          needs_.counters.back().labels.size() == set.labels.size() &&
                          needs_.counters.back().counters.is_shared_with(set.counters);
  for (const CounterDescription& counter : set.counters) {
    if (!is_checked && !check_counter(set, counter)) return;
  }
  needs_.counters.push_back(std::move(set));
}

}  // namespace bedplate
