#include "apps/peers/verbs_peers.h"

#include <cerrno>
#include <cstdio>

#include <unistd.h>

#include "apps/boot/appliance_user.h"
#include "apps/peers/peers_plan.h"
#include "apps/services/listeners.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "transport/verbs/device/verbs_ports.h"

namespace bedplate {
namespace {

// Beside [[verbs.export]]: the provider's exports, and with remote = "read" the heap and segment 0.
constexpr uint32_t kOwnExportCount = VerbsProvider::kExportCount + 2;
constexpr char kManager[] = "/dev/infiniband/rdma_cm";

RemoteRights rights_of(const VerbsExportSettings& settings) noexcept {
  return static_cast<RemoteRights>((settings.may_read ? kRead : 0) |
                                   (settings.may_write ? kWrite : 0) |
                                   (settings.may_atomic ? kAtomic : 0));
}

// Checks every number of the plan that the device limits; an error contains both numbers.
void check_limits(const Configuration& configuration, const AppliancePlan& plan,
                  const VerbsDevice& device, std::vector<Error>* problems) {
  const VerbsSettings& settings = verbs_settings(configuration);
  if (auto fits = check_fit(device.kind(), plan.pool); !fits.ok()) {
    problems->push_back(fits.error());
  }
  const bool uses_windows =
      device.enforces_windows() || (settings.trust_windows && device.has_windows());
  for (const VerbsDemand& demand :
       plan_verbs_demands(settings, plan.verbs, device.limits(), uses_windows)) {
    if (auto fits = device.check_demands({&demand, 1}); !fits.ok()) {
      problems->push_back(fits.error());
    }
  }
}

constexpr char kGiveRights[] =
    "make it readable and writable for the user that the appliance runs as";

Error no_rdma_cm() noexcept {
  const bool has_node = errno == EACCES;
  return error_from_errno("opening %s, which [verbs] connect = \"rdma_cm\" needs", kManager)
      .set_cure("%s", has_node ? kGiveRights
                               : "load the kernel module rdma_ucm (modprobe rdma_ucm), or set "
                                 "connect = \"socket\", at all peers");
}

Error no_access(const std::string& node) noexcept {
  return error_from_errno("opening %s", node.c_str()).set_cure("%s", kGiveRights);
}

Result<std::unique_ptr<VerbsDevice>> open_device(const VerbsSettings& settings,
                                                 const std::string& name, uint8_t port) {
  const auto export_count = static_cast<uint32_t>(settings.exports.size());
  return VerbsDevice::open(
      {.device = name, .port = port, .export_count_max = export_count + kOwnExportCount});
}

// The error for memory that needs several regions: a provider has one key for all its memory.
Error in_pieces(const VerbsDevice& device, uint64_t bytes, uint64_t region_bytes) noexcept {
  return error_while("registering the memory for messages with peers with %s", device.kind().name)
      .set_answer("it has %s, but one region has at most %s", format_bytes(bytes).text,
                  format_bytes(region_bytes).text)
      .set_cure("lower max_peers, window, message_bytes or bounce_bytes in [verbs]");
}

}  // namespace

void VerbsPeers::open(const Configuration& configuration, const AppliancePlan& plan,
                      std::vector<Error>* problems) {
  const VerbsSettings& settings = verbs_settings(configuration);
  if (!settings.enabled) return;
  BP_ASSERT(device_ == nullptr && provider_ == nullptr);
  name_ = configuration.appliance.name;
  has_datagrams_ = settings.datagrams != 0;
  const bool is_by_manager = settings.connect == VerbsConnect::kRdmaCm;
  std::vector<Error> found;
  auto device = open_device(settings, settings.device, settings.port);
  if (device.ok()) {
    device_ = device.take();
    check_limits(configuration, plan, *device_, &found);
  } else {
    found.push_back(device.error());
  }
  const std::string node = device_ ? device_->node() : "";
  const auto look_at_nodes = [&](std::vector<Error>* seen) {
    if (is_by_manager && access(kManager, R_OK | W_OK) != 0) seen->push_back(no_rdma_cm());
    if (!node.empty() && access(node.c_str(), R_OK | W_OK) != 0) seen->push_back(no_access(node));
  };
  look_as_appliance(configuration, plan, look_at_nodes, &found);
  if (settings.required) problems->insert(problems->end(), found.begin(), found.end());
  // An address in use does not make the device unusable, so it is always an error. If there will be
  // no peers, the address is not needed, and not checked.
  if (settings.listen && !is_by_manager && (settings.required || found.empty())) {
    const auto look = [&](std::vector<Error>* seen) {
      Listeners("listen in [verbs]").open({*settings.listen}, seen);
    };
    look_as_appliance(configuration, plan, look, problems);
  }
  if (found.empty()) return;
  device_.reset();
  if (settings.required) return;
  for (const Error& error : found) log_error(error);
  BP_LOG_WARNING("%s: running without peers, as [verbs] required = false allows", name_.c_str());
}

bool VerbsPeers::is_valid() const noexcept {
  if (provider_ != nullptr && (device_ == nullptr || memory_.empty())) return false;
  if (loop_ != nullptr && (counters_ == nullptr || peers_.size() != peer_counters_.size())) {
    return false;
  }
  return !is_drained() || provider_ == nullptr || must_drain_.load(std::memory_order_relaxed);
}

void VerbsPeers::carve(const VerbsSettings& settings, PinnedPool& pool) {
  Segment& own = *pool.find_segment("verbs");
  BP_ASSERT(own.carved_bytes == 0 && memory_.empty() && exports_.empty());
  memory_ = pool.carve(own, "verbs", verbs_memory_bytes(verbs_shape(settings)));
  for (const VerbsExportSettings& one : settings.exports) {
    const OwnerName owner("export", one.name);
    exports_.push_back({one.name, pool.carve(*pool.find_segment(owner), owner, one.bytes)});
  }
}

// Opens the heap first: most loans are heap memory, so it should be found first.
Result<void> VerbsPeers::open_memory(const VerbsSettings& settings, PinnedPool& pool) {
  if (settings.remote == RemoteHeap::kRead) {
    for (Segment* segment : {pool.find_segment("heap"), &pool.segment(0)}) {
      auto opened = device_->add_export(pool, segment->memory(), kRead);
      if (!opened.ok()) return opened.error();
    }
  }
  BP_ASSERT(exports_.size() == settings.exports.size());
  for (size_t i = 0; i < exports_.size(); ++i) {
    auto opened = device_->add_export(pool, exports_[i].memory, rights_of(settings.exports[i]));
    if (!opened.ok()) return opened.error();
  }
  return {};
}

Result<void> VerbsPeers::connect_all(const Configuration& configuration, PinnedPool& pool,
                                     EventLoop& loop, Messenger& messenger,
                                     PeersCounters& counters) {
  const VerbsSettings& settings = verbs_settings(configuration);
  // Opens the device anew. Since open(), root may have been given up, or an image's first process
  // may have dropped capabilities. Linux refuses requests by write(), which soft RoCE uses, from a
  // thread whose credentials differ from those at opening. It must be the device that the plan was
  // checked against, even if there are others by now.
  BP_ASSERT(device_ != nullptr && !memory_.empty() && peers_.empty());
  const VerbsPort chosen = device_->port();
  device_.reset();
  BP_TRY_ASSIGN(device_, open_device(settings, chosen.device, chosen.port));
  BP_TRY(keys_.create(pool, *device_));
  const uint64_t in_one_bytes = keys_.key(memory_.data(), memory_.size()).bytes;
  if (in_one_bytes < memory_.size()) return in_pieces(*device_, memory_.size(), in_one_bytes);
  BP_TRY(open_memory(settings, pool));
  for (const VerbsPeerSettings& peer : settings.peers) peers_.push_back({peer.name, peer.address});
  VerbsProviderOptions options;
  options.device = device_.get();
  options.keys = &keys_;
  options.pool = &pool;
  options.memory = memory_;
  options.name = name_;
  options.peers = peers_;
  options.listen = settings.listen;
  options.connects_by_manager = settings.connect == VerbsConnect::kRdmaCm;
  options.shape = verbs_shape(settings);
  options.timing.backoff_ns_min = settings.back_off_min_ms * kNsPerMs;
  options.timing.backoff_ns_max = settings.back_off_max_ms * kNsPerMs;
  options.timing.give_up_ns = settings.give_up_ms * kNsPerMs;
  options.trust_windows = settings.trust_windows;
  options.loop_bell = &loop.doorbell();
  options.counters = &counters.verbs;
  provider_ = std::make_unique<VerbsProvider>();
  return provider_->create(options, messenger.dispatcher());
}

Result<void> VerbsPeers::create(const Configuration& configuration, PinnedPool& pool,
                                EventLoop& loop, ShardMessenger* messenger, CountersFile& file) {
  const VerbsSettings& settings = verbs_settings(configuration);
  if (!settings.enabled) return {};
  BP_ASSERT(!pool.is_sealed() && provider_ == nullptr && messenger != nullptr);
  carve(settings, pool);
  auto& counters = file.runtime<PeersCounters>("verbs");
  for (const VerbsPeerSettings& peer : settings.peers) {
    peer_counters_.push_back(&file.runtime<PeerCounters>("peer", peer.name));
  }
  if (!device_) return {};
  if (auto made = connect_all(configuration, pool, loop, messenger->messenger(), counters);
      !made.ok()) {
    close();
    if (settings.required) return made;
    log_error(made.error());
    BP_LOG_WARNING("%s: running without peers, as [verbs] required = false allows", name_.c_str());
    return {};
  }
  counters_ = &counters;
  const std::string device = device_->port().text();
  file.set_label("verbs", "", "device", device);
  messenger->add_peers(*provider_);
  loop_ = &loop;
  const std::string& shard = configuration.shards[settings.shard].name;
  loop.add_source(*this, 1, "the peers of [verbs]",
                  &file.runtime<SourceCounters>("source", source_instance(shard, "peers")));
  BP_LOG_INFO("%s: verbs through %s, %zu peer%s", name_.c_str(), device.c_str(), peers_.size(),
              peers_.size() == 1 ? "" : "s");
  BP_ASSERT(is_valid());
  return {};
}

void VerbsPeers::begin() noexcept {
  if (!provider_) return;
  BP_ASSERT(loop_->is_own_thread() && is_valid());
  for (const VerbsPeer& peer : peers_) {
    if (peer.address) (void)provider_->connect({.name = peer.name.c_str()});
  }
}

uint32_t VerbsPeers::poll(uint32_t) noexcept {
  BP_KEEPS_VALID(*this);
  BP_DCHECK(provider_ != nullptr && loop_->is_own_thread());
  if (must_drain_.load(std::memory_order_acquire) && !is_drained() && provider_->settle()) {
    is_drained_.store(true, std::memory_order_release);  // pairs with is_drained()
  }
  return 0;
}

void VerbsPeers::request_drain() noexcept {
  if (!provider_) return is_drained_.store(true, std::memory_order_release);
  must_drain_.store(true, std::memory_order_release);  // pairs with poll()
  loop_->doorbell().ring();
}

void VerbsPeers::close() noexcept {
  BP_ASSERT(is_valid() && (loop_ == nullptr || loop_->is_own_thread()));
  if (counters_ != nullptr) refresh_counters();  // the last chance: the provider goes next
  provider_.reset();
  keys_.destroy();
  device_.reset();
}

void VerbsPeers::refresh_counters() noexcept {
  if (!provider_) return;
  BP_DCHECK_SLOW(is_valid());
  for (uint32_t i = 0; i < peer_counters_.size(); ++i) {
    peer_counters_[i]->state.set(static_cast<uint64_t>(provider_->peer_state(i)));
  }
  counters_->handshakes_refused.set(provider_->refused_count());
  counters_->async_events.set(device_->event_count());
}

ProcessTerms VerbsPeers::terms() const noexcept {
  if (!is_there()) return Peers::terms();
  BP_ASSERT(device_ != nullptr);
  const VerbsPort& port = device_->port();
  return {port.device.c_str(), port.port};
}

std::span<std::byte> VerbsPeers::exported(std::string_view name) const noexcept {
  for (const Export& one : exports_) {
    if (one.name == name) return one.memory;
  }
  return {};
}

namespace {

PortsReport look_at_ports() {
  PortsReport report;
  auto ports = list_verbs_ports();
  if (ports.ok()) {
    for (const VerbsPort& port : ports.value()) {
      report.text += port.text() + "; ";
      report.has_usable = report.has_usable || port.is_usable();
    }
    report.advice = "bring a link up and give it an address";
  } else {
    report.text = ports.error().answer + std::string("; ");
    report.advice = ports.error().cure;
  }
  report.text += std::string("drivers: ") + verbs_drivers();
  return report;
}

bool has_port(const std::string& device, uint8_t port) {
  return choose_verbs_port(device, port).ok();
}

}  // namespace
}  // namespace bedplate

extern "C" const bedplate::PeersPart bedplate_peers_part;
const bedplate::PeersPart bedplate_peers_part = {
    []() -> std::unique_ptr<bedplate::Peers> { return std::make_unique<bedplate::VerbsPeers>(); },
    &bedplate::plan_peers, &bedplate::plan_verbs_contexts, &bedplate::look_at_ports,
    &bedplate::has_port};
