#include "transport/dpdk/port/port_queue_datapath.h"

#include <algorithm>

#include <rte_mbuf.h>

#include "platform/assert.h"
#include "transport/dpdk/port/local_checksum_datapath.h"

namespace bedplate {
namespace {

uint64_t bytes_of(std::span<rte_mbuf* const> frames) noexcept {
  uint64_t sum = 0;
  for (const rte_mbuf* frame : frames) sum += frame->pkt_len;
  return sum;
}

}  // namespace

PortQueue::PortQueue(const Options& options) noexcept
    : options_(options), number_(options.port->number()) {
  BP_ASSERT(options.port->is_open() && options.index < options.port->options().queue_count);
  if (options_.counters == nullptr) options_.counters = &own_counters_;
  if (options_.port->options().device.maps_peer_memory()) gate_.emplace();
}

bool PortQueue::is_valid() const noexcept {
  return next_look_ns_ > 0 && next_look_ns_ <= std::max(options_.idle_poll_ns, kFirstLookNs) &&
         gate_.has_value() == options_.port->options().device.maps_peer_memory();
}

uint16_t PortQueue::receive_burst(rte_mbuf** frames, uint16_t count) noexcept {
  if (!gate_) [[likely]]
    return rte_eth_rx_burst(number_, options_.index, frames, count);
  if (!gate_->enter()) return 0;
  const uint16_t came =
      options_.port->is_running() ? rte_eth_rx_burst(number_, options_.index, frames, count) : 0;
  gate_->leave();
  return came;
}

uint16_t PortQueue::send_burst(rte_mbuf** frames, uint16_t count) noexcept {
  if (!gate_) [[likely]]
    return rte_eth_tx_burst(number_, options_.index, frames, count);
  if (!gate_->enter()) return 0;
  const uint16_t taken =
      options_.port->is_running() ? rte_eth_tx_burst(number_, options_.index, frames, count) : 0;
  gate_->leave();
  return taken;
}

uint32_t PortQueue::poll(uint32_t budget) noexcept {
#if BP_DEBUG
  const ThreadOwner::Hold hold(owner_);
#endif
  if (is_cut_off_.load(std::memory_order_relaxed)) return 0;
  BP_KEEPS_VALID(*this);
  rte_mbuf* frames[kBurstMax];
  const auto wanted = static_cast<uint16_t>(std::min(budget, kBurstMax));
  BP_DCHECK(options_.receiver != nullptr && wanted > 0);
  const uint16_t count = receive_burst(frames, wanted);
  BP_DCHECK(count <= wanted);
  if (count == 0) return options_.receiver->advance();
  next_look_ns_ = kFirstLookNs;
  wake_.note_frames();
  PortQueueCounters& counters = *options_.counters;
  counters.received_frames.add(count);
  counters.received_bytes.add(bytes_of({frames, count}));
  counters.received_bursts.add(1);
  if (options_.port->options().device.is_kernel_interface())
    accept_local_checksums({frames, count});
  options_.receiver->receive({frames, count});
  return count + options_.receiver->advance();
}

void PortQueue::wake_by(StreamSockets& sockets, const WakeDescriptor& descriptor) noexcept {
  wake_.create({.descriptor = descriptor,
                .sockets = &sockets,
                .port = number_,
                .queue = options_.index,
                .wakes = &options_.counters->wakes});
}

void PortQueue::announce_sleep() noexcept {
  BP_DCHECK(owner_.is_caller());
  if (!is_cut_off_.load(std::memory_order_relaxed)) wake_.arm();
  next_look_ns_ = std::min(next_look_ns_ + next_look_ns_ / kGrowth, options_.idle_poll_ns);
  BP_DCHECK_SLOW(is_valid());
}

uint64_t PortQueue::sleep_max_ns() const noexcept {
  BP_DCHECK(options_.receiver != nullptr);
  if (is_cut_off_.load(std::memory_order_relaxed)) return kUnlimitedNs;  // poll() does nothing
  const uint64_t woken_within_ns = wake_.sleep_max_ns();
  return std::min(woken_within_ns != 0 ? woken_within_ns : next_look_ns_,
                  options_.receiver->idle_max_ns());
}

uint32_t PortQueue::send(std::span<rte_mbuf*> frames) noexcept {
  BP_DCHECK(owner_.is_caller());
  PortQueueCounters& counters = *options_.counters;
  uint32_t sent = 0;
  while (sent < frames.size() && !is_cut_off_.load(std::memory_order_relaxed)) {
    const auto rest = frames.subspan(sent, std::min<size_t>(frames.size() - sent, kBurstMax));
    uint64_t bytes = 0;
    for (const rte_mbuf* frame : rest) {
      BP_DCHECK(frame->nb_segs == 1 || options_.port->has(kMultiSegment));
      bytes += frame->pkt_len;  // counted now: the port owns sent frames
    }
    const uint16_t taken = send_burst(rest.data(), static_cast<uint16_t>(rest.size()));
    BP_DCHECK(taken <= rest.size());
    counters.sent_frames.add(taken);
    counters.sent_bytes.add(taken == rest.size() ? bytes : bytes - bytes_of(rest.subspan(taken)));
    sent += taken;
    if (taken < rest.size()) break;
  }
  if (sent < frames.size()) counters.refused_frames.add(frames.size() - sent);
  return sent;
}

rte_mbuf* PortQueue::allocate() noexcept {
  BP_DCHECK(owner_.is_caller());
  rte_mbuf* frame = rte_pktmbuf_alloc(options_.port->buffers().pool());
  BP_DCHECK(frame == nullptr || (frame->nb_segs == 1 && frame->pkt_len == 0));
  BP_DCHECK(frame == nullptr || rte_pktmbuf_headroom(frame) == RTE_PKTMBUF_HEADROOM);
  BP_DCHECK(frame == nullptr || rte_pktmbuf_tailroom(frame) >= mtu_bytes());
  if (frame == nullptr) options_.counters->no_buffer.add(1);
  return frame;
}

FrameOffloads PortQueue::offloads() const noexcept {
  const Port& port = *options_.port;
  return {.ipv4_checksum = port.has(kIpv4Checksum),
          .udp_checksum = port.has(kUdpChecksum),
          .multi_segment = port.has(kMultiSegment)};
}

}  // namespace bedplate
