#include "apps/ports/port_service.h"

#include <algorithm>
#include <string>

#include "apps/boot/ports_part.h"
#include "apps/boot/service_context.h"
#include "apps/ports/open_port.h"
#include "apps/ports/eal_counters.h"
#include "apps/ports/port_settings.h"
#include "apps/services/service_plan.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "platform/log.h"
#include "platform/units.h"
#include "transport/dpdk/eal/drivers.h"
#include "transport/dpdk/eal/eal.h"

namespace bedplate {
namespace {

constexpr uint64_t kHeapBytesMin = 8 * kMiB;  // EAL's need without a port, with a margin
constexpr char kThreads[] = "threads";

}  // namespace

DpdkService::DpdkService() : settings_(std::make_unique<DpdkSettings>()) {}
DpdkService::~DpdkService() = default;

void DpdkService::describe(ConfigurationTable& table) { bedplate::describe(table, *settings_); }

PortService::PortService(const DpdkService& dpdk) : dpdk_(dpdk) {}
PortService::~PortService() = default;

void PortService::describe(ConfigurationTable& table) {
  std::unique_ptr<OpenPort>& port = table.is_sample() ? sample_ : ports_.emplace_back();
  port = std::make_unique<OpenPort>();
  bedplate::describe(table, port->settings);
}

OpenPort* PortService::find(std::string_view name) noexcept {
  for (const auto& port : ports_) {
    if (port->settings.name == name) return port.get();
  }
  return nullptr;
}

OpenPort& PortService::target_of(const OpenPort& from) noexcept {
  OpenPort* const target = find(from.settings.forwards_to);
  BP_ASSERT(target != nullptr);
  return *target;
}

DatagramNetwork* PortService::datagram_network(std::string_view name) noexcept {
  return find(name);
}

uint64_t PortService::heap_bytes() const noexcept {
  uint64_t bytes = kHeapBytesMin + dpdk_.settings().heap_bytes;
  for (const auto& port : ports_) bytes += port->heap_bytes();
  return bytes;
}

// Checks the number of ports with the same device: two for a ring's two ends, any number for null,
// else one.
Result<void> PortService::check_device(const PortSettings& settings) const {
  const PortDevice::Kind kind = settings.device.kind;
  if (kind == PortDevice::Kind::kNull) return {};
  const size_t allowed_count = kind == PortDevice::Kind::kRing ? 2 : 1;
  const auto has_it = [&](const auto& port) {
    return port->settings.device_text == settings.device_text;
  };
  const auto first = std::find_if(ports_.begin(), ports_.end(), has_it);
  const auto count = static_cast<size_t>(std::count_if(ports_.begin(), ports_.end(), has_it));
  if (count <= allowed_count) return {};
  return configuration_error_while("checking the device %s", settings.device_text.c_str())
      .set_answer("%zu ports use it, %s is the first of them", count,
                  (*first)->settings.name.c_str())
      .set_cure("use it for %s only", allowed_count == 2 ? "two" : "one [[port]]");
}

Result<void> PortService::check_forwarding(const PortSettings& settings) noexcept {
  if (settings.forwards_to.empty()) return {};
  const bool is_own = settings.forwards_to == settings.name;
  if (!is_own && find(settings.forwards_to) != nullptr) return {};
  return configuration_error_while("checking the port %s", settings.name.c_str())
      .set_answer("forward_to is \"%s\", %s", settings.forwards_to.c_str(),
                  is_own ? "the port itself" : "which is not a port")
      .set_cure("name another [[port]]");
}

Result<void> PortService::plan(ServicePlan& plan) {
  for (const auto& port : ports_) {
    BP_TRY(check_device(port->settings));
    BP_TRY(check_forwarding(port->settings));
    BP_TRY(port->plan(plan));
  }
  for (const auto& port : ports_) {
    if (port->settings.forwards_to.empty()) continue;
    BP_TRY(port->check_forwarding_to(target_of(*port)));
  }
  plan.segment("dpdk", {{"dpdk", eal_memory_bytes(heap_bytes())}}, plan.placement(0));
  plan.counters({.owner = name(),
                 .name = "dpdk",
                 .instance = "",
                 .bytes = sizeof(EalCounters),
                 .counters = described_counters<EalCounters>(),
                 .labels = {{kThreads}}});
  return {};
}

void PortService::preflight(std::vector<Error>* problems) {
  if (const char* why = eal_is_impossible()) {
    problems->push_back(error_while("starting DPDK")
                            .set_answer("%s", why)
                            .set_cure("use another machine, or a DPDK that was compiled for "
                                      "this processor"));
  }
  for (const auto& port : ports_) {
    look_at_port_device(port->settings.name, port->settings.device,
                        port->settings.role == MemifRole::kServer, problems);
  }
}

Result<void> PortService::start_dpdk(ServiceContext& context) {
  BP_TRY_ASSIGN(const auto memory, context.carve("dpdk"));
  BP_ASSERT(memory.size() == eal_memory_bytes(heap_bytes()));  // what the ports have planned
  const Configuration& configuration = context.configuration();
  std::vector<int> cpus;
  for (const ShardSettings& shard : configuration.shards) cpus.push_back(shard.cpu);
  EalOptions options;
  options.memory = memory;
  options.pool = &process_pool();
  options.name = configuration.appliance.name;
  options.shard_cpus = cpus;
  options.has_telemetry = dpdk_.settings().has_telemetry;
  BP_TRY(start_eal(options));
  context.set_label("dpdk", "", kThreads, eal_threads());
  BP_LOG_INFO("dpdk: threads in addition to the shards: %s", eal_threads());
  return {};
}

Result<void> PortService::create(ServiceContext& context) {
  BP_TRY_ASSIGN(counters_, context.counters<EalCounters>("dpdk"));
  BP_TRY(start_dpdk(context));
  for (const auto& port : ports_) BP_TRY(port->create(context));
  for (const auto& port : ports_) {
    if (port->settings.forwards_to.empty()) continue;
    port->forward_to(target_of(*port));
  }
  counters_->heap_bytes.set(heap_bytes());
  return {};
}

void PortService::start(uint32_t shard) noexcept {
  if (auto entered = enter_eal(); !entered.ok()) log_error(entered.error());
  for (const auto& port : ports_) port->start(shard);
}

void PortService::tick() noexcept {
  BP_ASSERT(counters_ != nullptr);  // create() was called
  for (const auto& port : ports_) port->watch();
  counters_->heap_used_bytes.set(eal_heap_used_bytes());
}

}  // namespace bedplate

extern "C" const bedplate::PortsPart bedplate_ports_part;
const bedplate::PortsPart bedplate_ports_part = {&bedplate::dpdk_drivers,
                                                 &bedplate::eal_is_impossible};
