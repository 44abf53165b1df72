#include "apps/ports/open_port.h"

#include <algorithm>
#include <ctime>

#include <linux/capability.h>
#include <rte_mbuf.h>

#include "platform/assert.h"
#include "platform/log.h"
#include "platform/units.h"
#include "transport/dpdk/eal/vfio_group.h"
#include "transport/sockets/ip_address.h"
#include "transport/vfio/pci_device.h"
#include "transport/vfio/vfio_pool.h"

namespace bedplate {
namespace {

constexpr uint32_t kBurst = PortQueue::kBurstMax;
// Buffers in transit between queues, and buffers in a shard's cache.
constexpr uint64_t kSpareBuffers = 1024;
constexpr uint64_t kBuffersOfCache = 512;
// The buffers of a datagram that waits for its station's address: one for the headers, one that
// refers to the bytes, and one that holds them.
constexpr uint64_t kBuffersOfWaiting = 3;
// The memory that a packet layer allocates.
constexpr uint64_t kStackBytes = 4 * kMiB;
constexpr uint32_t kSocketsMin = 16;
constexpr uint32_t kMembershipsMin = 256;
constexpr uint32_t kCountMax = 4096;  // the limit of NetOptions
// The descriptors of a device: for its queues and interrupts.
constexpr uint32_t kDescriptorCount = 8;

NetTime time_of(EventLoop& loop) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return {loop.now_ns(),
          static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec)};
}

}  // namespace

void OpenPort::Receiver::create(NetStack& stack, EventLoop& loop) noexcept {
  BP_ASSERT(stack_ == nullptr);
  stack_ = &stack;
  loop_ = &loop;
}

void OpenPort::Receiver::receive(std::span<rte_mbuf*> frames) noexcept {
  stack_->receive(frames, time_of(*loop_));
}

uint32_t OpenPort::Receiver::advance() noexcept { return stack_->advance({loop_->now_ns(), 0}); }

uint64_t OpenPort::Receiver::idle_max_ns() const noexcept {
  const uint64_t deadline_ns = stack_->next_deadline_ns();
  if (deadline_ns == TimerQueue::kNever) return PollSource::kUnlimitedNs;
  const uint64_t now_ns = loop_->now_ns();
  return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

void OpenPort::Forwarder::create(PortQueue& out, Counter& dropped) noexcept {
  BP_ASSERT(out_ == nullptr);
  out_ = &out;
  dropped_ = &dropped;
}

void OpenPort::Forwarder::receive(std::span<rte_mbuf*> frames) noexcept {
  const uint32_t sent = out_->send(frames);
  if (sent == frames.size()) [[likely]]
    return;
  BP_ASSERT(sent < frames.size());
  const auto rest = frames.subspan(sent);
  rte_pktmbuf_free_bulk(rest.data(), static_cast<unsigned>(rest.size()));
  dropped_->add(rest.size());
}

std::vector<uint32_t> OpenPort::shards(const Configuration& configuration) const {
  if (!settings.shards.empty()) return settings.shards;
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < configuration.shards.size(); ++i) all.push_back(i);
  return all;
}

bool OpenPort::is_on(uint32_t shard) const noexcept {
  const std::vector<uint32_t>& named = settings.shards;
  return named.empty() || std::find(named.begin(), named.end(), shard) != named.end();
}

Result<void> OpenPort::plan_socket(uint32_t shard, const DatagramShape& shape) {
  if (!settings.forwards_to.empty()) {
    return configuration_error_while("planning a socket on the port %s", settings.name.c_str())
        .set_answer("its port forwards all received frames to the port %s",
                    settings.forwards_to.c_str())
        .set_cure("name another network, or leave forward_to out of its [[port]]");
  }
  if (!is_on(shard)) {
    return configuration_error_while("planning a socket on the port %s", settings.name.c_str())
        .set_answer("the port %s has no queue on that shard", settings.name.c_str())
        .set_cure("add the shard to shards of the [[port]], or leave shards out");
  }
  if (asked_.size() <= shard) asked_.resize(shard + 1);
  ++asked_[shard].socket_count;
  asked_[shard].kept_count += shape.buffer_count;
  return {};
}

uint64_t OpenPort::needed_buffer_count() const noexcept {
  uint64_t count = kSpareBuffers;
  count += shards_.size() * (uint64_t{2} * settings.descriptor_count + kBuffersOfCache);
  if (has_stack()) {
    count += shards_.size() * kBuffersOfWaiting * settings.waiting_count;
  }
  for (const Wanted& wanted : wanted_) count += wanted.kept_count;
  return count;
}

PortOptions OpenPort::port_options() const {
  BP_ASSERT(!shards_.empty());  // plan() was called
  PortOptions options;
  options.name = settings.name;
  options.device = settings.device;
  options.is_memif_server = settings.role == MemifRole::kServer;
  options.queue_count = static_cast<uint32_t>(shards_.size());
  options.descriptor_count = settings.descriptor_count;
  options.mtu_bytes = settings.mtu_bytes;
  options.strips_vlan = settings.vlan != 0;
  options.is_promiscuous = !settings.forwards_to.empty();
  options.buffer_count =
      settings.buffer_count.value_or(static_cast<uint32_t>(needed_buffer_count()));
  return options;
}

uint64_t OpenPort::heap_bytes() const noexcept { return port_heap_bytes(port_options()); }

std::string OpenPort::instance(const Configuration& configuration, uint32_t shard) const {
  BP_ASSERT(shard < configuration.shards.size());
  return settings.name + "/" + configuration.shards[shard].name;
}

// Whether VFIO drives the device. Mellanox drivers share the device with the kernel's driver, and
// register memory through it.
bool OpenPort::is_by_vfio() const {
  if (settings.device.kind != PortDevice::Kind::kPci) return false;
  auto device = look_up_pci_device(settings.device.argument);
  return !device.ok() || device.value().driver != "mlx5_core";
}

// Called before EAL probes the device.
Result<void> OpenPort::give_pool(VfioPool& vfio) {
  if (!is_by_vfio()) return {};
  BP_TRY_ASSIGN(const auto device, look_up_pci_device(settings.device.argument));
  BP_TRY_ASSIGN(const auto group, open_eal_vfio_group(device.group));
  return vfio.add_group(group, device.group);
}

Result<void> OpenPort::plan(ServicePlan& plan) {
  if (is_by_vfio()) plan.vfio_device(settings.device.argument);
  const Configuration& configuration = plan.configuration();
  shards_ = shards(configuration);
  wanted_ = std::move(asked_);
  BP_ASSERT(wanted_.size() <= configuration.shards.size());  // no socket is lost
  wanted_.resize(configuration.shards.size());
  asked_.clear();
  Error error = configuration_error_while("planning the port %s", settings.name.c_str());
  if (shards_.size() > Port::kQueueCountMax) {
    return error.set_answer("it would have %zu queues", shards_.size())
        .set_cure("name at most %u shards in shards of the [[port]]", Port::kQueueCountMax);
  }
  const uint64_t needed = needed_buffer_count();
  if (settings.buffer_count && *settings.buffer_count < needed) {
    return error.set_answer("it has %u buffers", *settings.buffer_count)
        .set_cure("set buffers to %zu or more, or leave it out: its queues and the sockets on it "
                  "need that many",
                  static_cast<size_t>(needed));
  }
  if (needed > kMbufCountMax) {
    return error.set_answer("its queues and sockets need %zu buffers", static_cast<size_t>(needed))
        .set_cure("lower descriptors, or the buffers of sockets: it can have at most %u",
                  kMbufCountMax);
  }
  const PortOptions options = port_options();
  const OwnerName owner("buffers", settings.name);
  plan.segment(owner, {{owner, mbuf_shape(options.mtu_bytes, options.buffer_count).bytes()}},
               plan.placement(shards_[0]));
  if (has_stack()) plan.heap(shards_.size() * kStackBytes);
  plan.descriptors(kDescriptorCount * (1 + options.queue_count), nullptr);
  plan.counters<PortCounters>("port", settings.name);
  for (const uint32_t shard : shards_) {
    plan.sources(shard, 1);
    plan.watches(shard, 1);
    plan.counters<PortQueueCounters>("queue", instance(configuration, shard));
    if (has_stack()) plan.counters<NetCounters>("net", instance(configuration, shard));
  }
  if (settings.device.is_kernel_interface()) {
    plan.capability(CAP_NET_RAW);
    plan.capability(CAP_NET_ADMIN);
  }
  return {};
}

NetOptions OpenPort::net_options() const {
  NetOptions options;
  options.name = settings.name.c_str();
  static_assert(PortSettings::kAddressesMax <= NetOptions::kAddressCountMax);
  BP_ASSERT(settings.addresses.size() <= PortSettings::kAddressesMax);
  // The configuration's parser accepts only texts that these functions can read.
  for (const std::string& text : settings.addresses) {
    const auto prefix = parse_ip_prefix(text);
    BP_ASSERT(prefix.has_value());
    options.addresses[options.address_count++] = *prefix;
  }
  for (const std::string& text : settings.gateways) {
    const auto gateway = parse_ip_address(text);
    BP_ASSERT(gateway.has_value());
    (gateway->family == AF_INET ? options.gateway4 : options.gateway6) = *gateway;
  }
  options.takes_routers = settings.takes_routers;
  options.vlan = settings.vlan;
  options.waiting_count_max = settings.waiting_count;
  return options;
}

Result<void> OpenPort::create(ServiceContext& context) {
  BP_ASSERT(lanes_.empty());
  PortOptions options = port_options();
  BP_TRY_ASSIGN(options.memory, context.carve(OwnerName("buffers", settings.name)));
  BP_TRY_ASSIGN(options.counters, context.counters<PortCounters>("port", settings.name));
  options.mac = port_mac(settings, context.configuration().appliance.name);
  BP_TRY(give_pool(context.vfio()));
  BP_TRY(port_.open(options));
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    auto lane = std::make_unique<Lane>();
    lane->shard = shards_[i];
    lane->loop = &context.loop(shards_[i]);
    lanes_.push_back(std::move(lane));
  }
  if (has_stack() && lanes_.size() > 1) {
    PortShared::Options shared;
    shared.queue_count = static_cast<uint32_t>(lanes_.size());
    shared.wake = [](void* self, uint32_t index) noexcept {
      const auto& lanes = static_cast<OpenPort*>(self)->lanes_;
      BP_DCHECK(index < lanes.size());
      lanes[index]->loop->doorbell().ring();
    };
    shared.context = this;
    shared_ = std::make_unique<PortShared>(shared);
  }
  for (uint32_t i = 0; i < lanes_.size(); ++i) BP_TRY(create_lane(context, i));
  BP_TRY(port_.start());
  for (uint32_t i = 0; i < lanes_.size(); ++i) {
    const auto queue = static_cast<uint16_t>(i);
    lanes_[i]->queue->wake_by(context.sockets(lanes_[i]->shard),
                              find_wake_descriptor(port_, queue));
  }
  return {};
}

Result<void> OpenPort::create_lane(ServiceContext& context, uint32_t index) {
  Lane& lane = *lanes_[index];
  const std::string name = instance(context.configuration(), lane.shard);
  BP_TRY_ASSIGN(lane.counters, context.counters<PortQueueCounters>("queue", name));
  lane.queue = std::make_unique<PortQueue>(
      PortQueue::Options{.port = &port_,
                         .index = static_cast<uint16_t>(index),
                         .counters = lane.counters,
                         .idle_poll_ns = settings.idle_poll_us * kNsPerUs});
  if (has_stack()) BP_TRY(create_stack(context, lane, index));
  return context.add_source(lane.shard, *lane.queue, kBurst);
}

Result<void> OpenPort::create_stack(ServiceContext& context, Lane& lane, uint32_t index) {
  NetOptions options = net_options();
  BP_ASSERT(lane.shard < wanted_.size());
  const uint32_t socket_count = wanted_[lane.shard].socket_count;
  options.socket_count_max = std::clamp(socket_count, kSocketsMin, kCountMax);
  options.membership_count_max = std::clamp(4 * socket_count, kMembershipsMin, kCountMax);
  const std::string name = instance(context.configuration(), lane.shard);
  BP_TRY_ASSIGN(options.counters, context.counters<NetCounters>("net", name));
  options.shared = shared_.get();
  options.queue_index = index;
  if (const char* wrong = NetStack::check(options)) {
    return error_while("checking the port %s", settings.name.c_str())
        .set_answer("%s", wrong)
        .set_cure("correct its [[port]]");
  }
  lane.stack = std::make_unique<NetStack>(*lane.queue, options);
  lane.receiver.create(*lane.stack, *lane.loop);
  lane.queue->set_receiver(lane.receiver);
  return {};
}

OpenPort::Lane* OpenPort::find_lane(uint32_t shard) noexcept {
  for (const auto& lane : lanes_) {
    if (lane->shard == shard) return lane.get();
  }
  return nullptr;
}

Result<DatagramSocket*> OpenPort::make_socket(uint32_t shard, const DatagramShape& shape) {
  Lane* lane = find_lane(shard);
  if (lane == nullptr || lane->sockets.size() == wanted_[shard].socket_count) {
    return Error{}
        .set_answer("the port %s does not exist yet, or fewer sockets were planned on it",
                    settings.name.c_str())
        .set_cure("correct the program: it must list the ports before the services that use them");
  }
  lane->sockets.push_back(std::make_unique<PortDatagramSocket>(lane->stack->socket_parts(), shape));
  return lane->sockets.back().get();
}

void OpenPort::start(uint32_t shard) noexcept {
  if (!has_stack()) return;
  if (Lane* lane = find_lane(shard)) lane->stack->start(time_of(*lane->loop));
}

Result<void> OpenPort::check_forwarding_to(const OpenPort& other) const {
  BP_ASSERT(!shards_.empty() && !other.shards_.empty());  // both are planned
  for (const uint32_t shard : shards_) {
    if (std::find(other.shards_.begin(), other.shards_.end(), shard) != other.shards_.end()) {
      continue;
    }
    return configuration_error_while("planning the port %s, which forwards to %s",
                                     settings.name.c_str(), other.settings.name.c_str())
        .set_answer("the second has no queue on a shard of the first")
        .set_cure("name the same shards in both [[port]]");
  }
  return {};
}

void OpenPort::forward_to(OpenPort& other) noexcept {
  BP_ASSERT(&other != this);
  for (const auto& lane : lanes_) {
    Lane* const out = other.find_lane(lane->shard);
    BP_ASSERT(out != nullptr);
    lane->forwarder.create(*out->queue, lane->counters->unforwarded_frames);
    lane->queue->set_receiver(lane->forwarder);
  }
}

void OpenPort::watch() noexcept {
  port_.watch();
  if (port_.state() != PortState::kGone) return;
  for (const auto& lane : lanes_) lane->queue->cut_off();
}

}  // namespace bedplate
