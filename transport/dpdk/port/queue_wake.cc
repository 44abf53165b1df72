#include "transport/dpdk/port/queue_wake.h"

#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_ethdev.h>

#include "platform/assert.h"
#include "transport/dpdk/port/port.h"
#include "transport/dpdk/port/xdp_sockets.h"
#include "transport/sockets/stream_sockets.h"

namespace bedplate {
namespace {

using Kind = PortDevice::Kind;

// The driver of af_packet has no function for its sockets. Its record of a queue begins with the
// queue's socket; this function checks that.
int packet_socket_of(const Port& port, uint16_t queue) noexcept {
  const auto* record = static_cast<const int*>(rte_eth_fp_ops[port.number()].rxq.data[queue]);
  if (record == nullptr) return -1;
  sockaddr_ll bound = {};
  socklen_t bytes = sizeof bound;
  if (getsockname(*record, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) return -1;
  const bool is_it =
      bound.sll_family == AF_PACKET && static_cast<unsigned>(bound.sll_ifindex) ==
                                           if_nametoindex(port.options().device.argument.c_str());
  return is_it ? *record : -1;
}

int interrupt_of(const Port& port, uint16_t queue) noexcept {
  return port.asks_interrupts() ? rte_eth_dev_rx_intr_ctl_q_get_fd(port.number(), queue) : -1;
}

}  // namespace

WakeDescriptor find_wake_descriptor(const Port& port, uint16_t queue) noexcept {
  const PortDevice& device = port.options().device;
  switch (device.kind) {
    case Kind::kAfPacket: return {packet_socket_of(port, queue), false};
    case Kind::kAfXdp: return {xdp_socket_of(device.argument, queue), false};
    // The driver reports the interface's own descriptor as the interrupt.
    case Kind::kTap: return {interrupt_of(port, queue), false};
    case Kind::kPci: return {interrupt_of(port, queue), true};
    case Kind::kMemif:
    case Kind::kRing:
    case Kind::kNull: break;
  }
  return {};
}

void QueueWake::create(const Options& options) noexcept {
  BP_ASSERT(options_.sockets == nullptr && options.sockets != nullptr && options.wakes != nullptr);
  options_ = options;
  watch_.fd = options.descriptor.fd;
  watch_.events = POLLIN;
  watch_.context = this;
  watch_.ready = [](void* self, uint32_t events) noexcept {
    static_cast<QueueWake*>(self)->woken(events);
  };
}

void QueueWake::arm() noexcept {
  BP_KEEPS_VALID(*this);
  if (watch_.fd < 0 || vain_count_ >= kVainMax) return;
  if (options_.descriptor.is_interrupt && !is_asked_for_) {
    if (rte_eth_dev_rx_intr_enable(options_.port, options_.queue) != 0) return;
    is_asked_for_ = true;
  }
  if (!watch_.is_watched()) (void)options_.sockets->start_watching(watch_);
}

void QueueWake::woken(uint32_t events) noexcept {
  BP_KEEPS_VALID(*this);
  options_.sockets->stop_watching(watch_);
  options_.wakes->add(1);
  ++vain_count_;
  has_woken_ = true;
  if (options_.descriptor.is_interrupt) {
    uint64_t count = 0;
    (void)!read(watch_.fd, &count, sizeof count);
    rte_eth_dev_rx_intr_disable(options_.port, options_.queue);
    is_asked_for_ = false;
  } else if ((events & POLLERR) != 0) {
    // After the link went down the descriptor reports an error until the error is read.
    int error = 0;
    socklen_t bytes = sizeof error;
    (void)getsockopt(watch_.fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  }
}

uint64_t QueueWake::sleep_max_ns() const noexcept {
  if (!watch_.is_watched()) return 0;
  if (!options_.descriptor.is_interrupt) return PollSource::kUnlimitedNs;
  return has_woken_ ? kInterruptLookNs : 0;
}

}  // namespace bedplate
