#include "transport/dpdk/port/port.h"

#include <algorithm>
#include <cstdlib>

#include <net/if.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ring.h>
#include <sys/socket.h>

#include "platform/file.h"
#include "platform/log.h"
#include "platform/product.h"
#include "platform/text_words.h"
#include "platform/units.h"
#include "transport/dpdk/eal/eal_log.h"
#include "transport/dpdk/port/queue_wake.h"
#include "transport/sockets/socket_address.h"

namespace bedplate {
namespace {

using Kind = PortDevice::Kind;

// Ethernet's header, a tag of 802.1Q, and the check sequence, which some devices leave in place.
constexpr uint32_t kFrameExtraBytes = RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN + RTE_ETHER_CRC_LEN;

// Upper bounds of a driver's records in EAL's heap: for each descriptor, each way, including the
// driver's own record of it; and for each device.
constexpr uint64_t kDescriptorBytes = 160;
constexpr uint64_t kDeviceBytes = kMiB;

// Maps DPDK's offload bits to ours.
struct OffloadBit {
  uint64_t theirs;
  PortOffload ours;
};
constexpr OffloadBit kSendBits[] = {{RTE_ETH_TX_OFFLOAD_IPV4_CKSUM, kIpv4Checksum},
                                    {RTE_ETH_TX_OFFLOAD_UDP_CKSUM, kUdpChecksum},
                                    {RTE_ETH_TX_OFFLOAD_MULTI_SEGS, kMultiSegment}};
constexpr uint64_t kReceiveChecksums = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;

// Two ports of one name share the rings: each receives the frames that the other sends.
struct RingPair {
  std::string name;
  uint32_t user_count = 0;
  uint32_t queue_count = 0;  // of each of the two
  rte_ring* rings[2][Port::kQueueCountMax] = {};
};
constexpr uint32_t kRingPairMax = 16;
RingPair ring_pairs[kRingPairMax];

RingPair* find_pair(const std::string& name) noexcept {
  for (RingPair& pair : ring_pairs) {
    if (pair.user_count > 0 && pair.name == name) return &pair;
  }
  for (RingPair& pair : ring_pairs) {
    if (pair.user_count > 0) continue;
    pair.name = name;
    return &pair;
  }
  return nullptr;
}

bool can_interrupt(Kind kind) noexcept { return kind == Kind::kPci || kind == Kind::kTap; }

uint64_t file_value(const std::string& path, uint64_t otherwise) noexcept {
  return read_number_file(path.c_str()).value_or(otherwise);
}

std::string words_of(uint64_t bits, bool are_there) {
  std::string words;
  std::string_view rest = kPortOffloadWords;
  for (uint64_t bit = 1; !rest.empty(); bit <<= 1) {
    const size_t end = std::min(rest.find('|'), rest.size());
    if (((bits & bit) != 0) == are_there) {
      words += (words.empty() ? "" : ", ") + std::string(rest.substr(0, end));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::replace(words.begin(), words.end(), '_', ' ');
  return words.empty() ? "nothing" : words;
}

}  // namespace

MbufShape mbuf_shape(uint32_t mtu_bytes, uint32_t buffer_count) noexcept {
  // Some devices take only buffers of a multiple of 1 KiB.
  return {buffer_count, static_cast<uint32_t>(align_up(mtu_bytes + kFrameExtraBytes, kKiB))};
}

uint64_t port_heap_bytes(const PortOptions& options) noexcept {
  return mbuf_shape(options.mtu_bytes, options.buffer_count).heap_bytes() + kDeviceBytes +
         2 * uint64_t{options.queue_count} *
             (options.descriptor_count * kDescriptorBytes + 64 * kKiB);
}

Port::~Port() { close(); }

Error Port::failed(const char* doing, int outcome) const {
  const char* said = take_eal_error();
  if (said[0] == '\0') said = rte_strerror(outcome < 0 ? -outcome : outcome);
  return error_while("%s the port %s (%s)", doing, options_.name.c_str(),
                     options_.device.text().c_str())
      .set_answer("%s", said);
}

Result<void> Port::open(const PortOptions& options) {
  BP_ASSERT(!is_open() && options.queue_count >= 1 && options.queue_count <= kQueueCountMax);
  options_ = options;
  (void)take_eal_error();
  buffers_ = new MbufPool;
  BP_TRY(buffers_->create("buffers:" + options_.name, options_.memory,
                          mbuf_shape(options_.mtu_bytes, options_.buffer_count)));
  BP_TRY(options_.device.kind == Kind::kRing ? attach_rings() : attach());
  asks_interrupts_ = options_.wants_interrupts && can_interrupt(options_.device.kind);
  BP_TRY(configure());
  if (options_.counters != nullptr) {
    options_.counters->offloads.set(offloads_);
    options_.counters->buffers.set(options_.buffer_count);
  }
  BP_LOG_INFO("port %s (%s): the device does %s; in software: %s", options_.name.c_str(),
              options_.device.text().c_str(), words_of(offloads_, true).c_str(),
              words_of(offloads_ | kReceiveInterrupts, false).c_str());
  return {};
}

// "net_tap_lan,iface=tap0": DPDK's name of the device, and its arguments.
std::string Port::arguments_of_device() const {
  const PortDevice& device = options_.device;
  if (device.kind == Kind::kPci) return device.argument;
  const std::string queues = std::to_string(options_.queue_count);
  std::string text = "net_" + std::string(device.driver()) + "_" + options_.name;
  switch (device.kind) {
    case Kind::kAfPacket: {
      // The kernel's rings have slots of a power of two, each with some bytes of its own.
      uint64_t frame_bytes = 2 * kKiB;
      while (frame_bytes < options_.mtu_bytes + kFrameExtraBytes + 128) frame_bytes *= 2;
      text += ",iface=" + device.argument + ",qpairs=" + queues +
              ",framesz=" + std::to_string(frame_bytes) + ",blocksz=" + std::to_string(64 * kKiB) +
              ",framecnt=" + std::to_string(options_.descriptor_count);
      break;
    }
    case Kind::kAfXdp: text += ",iface=" + device.argument + ",queue_count=" + queues; break;
    case Kind::kTap: {
      // The interface is the kernel's end: a station with a MAC address of its own.
      rte_ether_addr kernels = options_.mac;
      kernels.addr_bytes[5] ^= 1;
      char mac[RTE_ETHER_ADDR_FMT_SIZE];
      rte_ether_format_addr(mac, sizeof mac, &kernels);
      text += ",iface=" + device.argument + ",mac=" + mac;
      break;
    }
    case Kind::kMemif: {
      uint32_t log2 = 0;
      while ((2U << log2) <= options_.descriptor_count) ++log2;
      text += ",socket=" + device.argument +
              ",socket-abstract=no,id=0,role=" + (options_.is_memif_server ? "server" : "client") +
              ",rsize=" + std::to_string(log2) +
              ",bsize=" + std::to_string(align_up(options_.mtu_bytes + kFrameExtraBytes, 1024));
      break;
    }
    default: break;
  }
  return text;
}

Result<void> Port::attach() {
  // A killed server leaves its socket behind, and the driver refuses to replace it.
  if (options_.is_memif_server) remove_stale_socket(options_.device.argument, SOCK_SEQPACKET);
  const std::string arguments = arguments_of_device();
  if (const int outcome = rte_dev_probe(arguments.c_str()); outcome < 0) {
    Error error = failed("attaching", outcome);
    if (options_.device.kind != Kind::kPci) return error;
    return error.set_cure("check that one of its drivers is linked in (`%s doctor`), and that "
                          "the device is bound to vfio-pci",
                          product().name);
  }
  const std::string name = arguments.substr(0, arguments.find(','));
  if (const int outcome = rte_eth_dev_get_port_by_name(name.c_str(), &number_); outcome != 0) {
    number_ = RTE_MAX_ETHPORTS;
    return failed("finding", outcome).set_cure("name a network device");
  }
  return {};
}

Result<void> Port::attach_rings() {
  RingPair* pair = find_pair(options_.device.argument);
  if (pair == nullptr || pair->user_count == 2) {
    return Error{failed("attaching", ENOSPC)}
        .set_answer("%s", pair == nullptr ? "there are too many rings" : "two ports already use it")
        .set_cure("let at most two ports use a ring");
  }
  const bool is_second = pair->user_count == 1;
  if (is_second && options_.queue_count != pair->queue_count) {
    return Error{failed("attaching", EINVAL)}
        .set_answer("it has %u queues, and the other port of the ring has %u", options_.queue_count,
                    pair->queue_count)
        .set_cure("name as many shards in both [[port]]");
  }
  for (uint32_t i = 0; i < options_.queue_count; ++i) {
    for (uint32_t direction = 0; direction < 2; ++direction) {
      if (pair->rings[direction][i] != nullptr) continue;
      const std::string name =
          "ring:" + pair->name + ":" + std::to_string(direction) + ":" + std::to_string(i);
      pair->rings[direction][i] = rte_ring_create(name.c_str(), options_.descriptor_count,
                                                  SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
      if (pair->rings[direction][i] == nullptr) return failed("making the rings of", rte_errno);
    }
  }
  const int number = rte_eth_from_rings(
      ("ring_" + options_.name).c_str(), pair->rings[is_second ? 0 : 1], options_.queue_count,
      pair->rings[is_second ? 1 : 0], options_.queue_count, SOCKET_ID_ANY);
  if (number < 0) return failed("attaching", rte_errno);
  BP_ASSERT(pair->user_count < 2);
  ++pair->user_count;
  pair->queue_count = options_.queue_count;
  number_ = static_cast<uint16_t>(number);
  return {};
}

Result<void> Port::configure() {
  rte_eth_dev_info info = {};
  if (const int outcome = rte_eth_dev_info_get(number_, &info); outcome != 0) {
    return failed("asking for the properties of", outcome);
  }
  const uint32_t queues_max = std::min(info.max_rx_queues, info.max_tx_queues);
  if (options_.queue_count > queues_max) {
    return failed("configuring", EINVAL)
        .set_answer("the device has %u queues, and %u shards are to use it", queues_max,
                    options_.queue_count)
        .set_cure("name at most %u shards in shards of [[port]]", queues_max);
  }
  rte_eth_conf conf = {};
  conf.rxmode.mtu = options_.mtu_bytes;
  const uint64_t checksums = info.rx_offload_capa & kReceiveChecksums;
  conf.rxmode.offloads |= checksums;
  if (checksums == kReceiveChecksums) offloads_ |= kReceiveChecksum;
  if (options_.strips_vlan && (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_STRIP) != 0) {
    conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_VLAN_STRIP;
    offloads_ |= kVlanStripping;
  }
  for (const OffloadBit& bit : kSendBits) {
    if ((info.tx_offload_capa & bit.theirs) == 0) continue;
    conf.txmode.offloads |= bit.theirs;
    offloads_ |= bit.ours;
  }
  const uint64_t spreads =
      info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
  if (options_.queue_count > 1 && spreads != 0) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = spreads;
    offloads_ |= kSpreading;
  }
  conf.intr_conf.rxq = asks_interrupts_;
  conf.intr_conf.lsc = (*info.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
  const auto count = static_cast<uint16_t>(options_.queue_count);
  if (const int outcome = rte_eth_dev_configure(number_, count, count, &conf); outcome != 0) {
    return failed("configuring", outcome);
  }
  BP_TRY(set_up_queues(info));
  mac_ = options_.mac;
  if (options_.device.has_address()) rte_eth_macaddr_get(number_, &mac_);
  return {};
}

Result<void> Port::set_up_queues(const rte_eth_dev_info& info) {
  auto in = static_cast<uint16_t>(options_.descriptor_count);
  auto out = in;
  if (const int outcome = rte_eth_dev_adjust_nb_rx_tx_desc(number_, &in, &out); outcome != 0) {
    return failed("configuring the queues of", outcome);
  }
  rte_eth_txconf send = info.default_txconf;
  // An mbuf may be in several frames at a time.
  send.offloads &= ~uint64_t{RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE};
  for (uint16_t i = 0; i < options_.queue_count; ++i) {
    const auto node = static_cast<unsigned>(SOCKET_ID_ANY);
    int outcome = rte_eth_rx_queue_setup(number_, i, in, node, nullptr, buffers_->pool());
    if (outcome == 0) outcome = rte_eth_tx_queue_setup(number_, i, out, node, &send);
    if (outcome != 0) return failed("making the queues of", outcome);
  }
  return {};
}

bool Port::is_memif_client() const noexcept {
  return options_.device.kind == Kind::kMemif && !options_.is_memif_server;
}

// If the device refuses to interrupt for frames, it is started without.
int Port::start_device() {
  if (is_memif_client()) {
    is_running_ = memif_client_.connect(number_);
    return 0;
  }
  const int outcome = rte_eth_dev_start(number_);
  is_running_ = outcome == 0;
  if (outcome == 0 || !asks_interrupts_) return outcome;
  asks_interrupts_ = false;
  if (!configure().ok() || rte_eth_dev_start(number_) != 0) return outcome;
  is_running_ = true;
  return 0;
}

Result<void> Port::start() {
  BP_ASSERT(is_open() && !is_started_);
  if (const int outcome = start_device(); outcome != 0) return failed("starting", outcome);
  is_started_ = true;
  if (options_.is_promiscuous) rte_eth_promiscuous_enable(number_);
  if (options_.takes_all_groups) rte_eth_allmulticast_enable(number_);
  if (find_wake_descriptor(*this, 0).fd >= 0) {
    offloads_ |= kReceiveInterrupts;
    if (options_.counters != nullptr) options_.counters->offloads.set(offloads_);
  }
  BP_LOG_INFO("port %s: %s", options_.name.c_str(),
              has(kReceiveInterrupts) ? "frames wake an idle shard"
                                      : "nothing wakes an idle shard: it polls by a timer");
  watch();
  return {};
}

void Port::close() noexcept {
  if (!is_open()) return;
  if (is_started_) rte_eth_dev_stop(number_);
  rte_eth_dev_close(number_);
  number_ = RTE_MAX_ETHPORTS;
  is_started_ = false;
}

// Asks the kernel first if an interface carries the port: the driver always calls such a link up.
PortState Port::look() noexcept {
  if (options_.device.is_kernel_interface()) {
    const char* name = options_.device.argument.c_str();
    if (if_nametoindex(name) == 0) return PortState::kGone;
    if (options_.device.kind != Kind::kTap) {
      const std::string path = std::string("/sys/class/net/") + name + "/carrier";
      return file_value(path, 0) != 0 ? PortState::kUp : PortState::kDown;
    }
  }
  if (rte_eth_dev_is_removed(number_) != 0 && options_.device.kind == Kind::kPci) {
    return PortState::kGone;
  }
  rte_eth_link link = {};
  if (rte_eth_link_get_nowait(number_, &link) != 0) return PortState::kDown;
  if (options_.counters != nullptr && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN) {
    options_.counters->speed_mbps.set(link.link_speed);
  }
  return link.link_status != 0 ? PortState::kUp : PortState::kDown;
}

void Port::watch() noexcept {
  if (!is_open() || state_ == PortState::kGone) return;
  PortState now = look();
  if (is_memif_client() && now == PortState::kUp) memif_client_.note_link();
  if (is_memif_client() && now == PortState::kDown && memif_client_.is_due()) {
    is_running_ = memif_client_.connect(number_);
    now = look();
  }
  PortCounters* counters = options_.counters;
  if (now != state_) {
    const char* name = options_.name.c_str();
    if (now == PortState::kUp) {
      BP_LOG_INFO("port %s: the link is up", name);
    } else {
      BP_LOG_WARNING("port %s: %s", name,
                     now == PortState::kGone ? "the device is gone" : "the link is down");
    }
    if (counters != nullptr) {
      if (now == PortState::kUp) counters->link_ups.add(1);
      if (state_ == PortState::kUp) counters->link_downs.add(1);
      counters->state.set(static_cast<uint64_t>(now));
    }
    state_ = now;
  }
  rte_eth_stats stats = {};
  if (counters == nullptr || rte_eth_stats_get(number_, &stats) != 0) return;
  counters->missed_frames.set(stats.imissed);
  counters->receive_errors.set(stats.ierrors);
  counters->send_errors.set(stats.oerrors);
  counters->no_buffer_frames.set(stats.rx_nombuf);
  const uint64_t free_count = buffers_->free_count();
  counters->free_buffers.set(free_count);
  // Other threads take and return buffers meanwhile, so the count may be off by these.
  counters->used_peak_buffers.raise(counters->buffers.read() -
                                    std::min(counters->buffers.read(), free_count));
}

}  // namespace bedplate
