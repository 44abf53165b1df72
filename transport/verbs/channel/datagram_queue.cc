// DatagramQueue: creation, renewal, and its peers.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "transport/verbs/channel/datagram_queue_datapath.h"

namespace bedplate {

void DatagramQueue::destroy() noexcept {
  if (queue_pair_ != nullptr) ibv_destroy_qp(queue_pair_);
  queue_pair_ = nullptr;
  for (uint32_t i = 0; peers_ != nullptr && i < options_.peer_count_max; ++i) {
    if (peers_[i].handle != nullptr) ibv_destroy_ah(peers_[i].handle);
  }
  peers_.reset();
}

Result<void> DatagramQueue::create(const DatagramQueueOptions& options) noexcept {
  BP_ASSERT(!is_open() && options.memory.size() >= memory_bytes(options.count));
  BP_DCHECK(std::has_single_bit(options.count) && options.peer_count_max > 0);
  BP_DCHECK(options.count >= kCountMin && options.count <= kCountMax);
  options_ = options;
  if (options_.counters == nullptr) options_.counters = &own_counters_;
  peers_ = std::make_unique<Peer[]>(options_.peer_count_max);
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = options_.completions;
  attributes.recv_cq = options_.completions;
  attributes.cap.max_send_wr = options_.count;
  attributes.cap.max_recv_wr = options_.count;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_UD;
  queue_pair_ = ibv_create_qp(options_.device->domain(), &attributes);
  if (queue_pair_ == nullptr) {
    return error_from_errno("making a queue pair for datagrams of %s with %u requests",
                            options_.device->kind().name, options_.count)
        .set_cure("plan fewer datagrams, or none");
  }
  BP_TRY(bring_up());
  post_receives();
  return {};
}

bool DatagramQueue::is_valid() const noexcept {
  if (next_ - ended_ > options_.count || taken_back_ > options_.count) return false;
  if (has_failed_ != (taken_back_ > 0)) return false;
  return std::all_of(peers_.get(), peers_.get() + options_.peer_count_max, [](const Peer& peer) {
    const ibv_mtu mtu = peer.address.mtu;
    return peer.address.queue <= kQueueNumberMax && mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096;
  });
}

void DatagramQueue::post_receives() noexcept {
  for (uint32_t i = 0; i < options_.count; ++i) post_receive(i);
}

// The queue pair keeps its number, which the peers know. If the device refuses, the device is gone,
// and all connections soon are, too.
void DatagramQueue::renew() noexcept {
  BP_ASSERT(has_failed_ && taken_back_ == options_.count);
  BP_DCHECK(is_open());
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RESET;
  ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
  if (!bring_up().ok()) return;
  ended_ = next_;
  taken_back_ = 0;
  has_failed_ = false;
  options_.counters->renewed.add(1);
  post_receives();
}

Result<void> DatagramQueue::bring_up() noexcept {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = options_.device->port().port;
  attributes.qkey = options_.key;
  int outcome = ibv_modify_qp(queue_pair_, &attributes,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  attributes.qp_state = IBV_QPS_RTR;
  if (outcome == 0) outcome = ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
  attributes.qp_state = IBV_QPS_RTS;
  if (outcome == 0) {
    outcome = ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN);
  }
  if (outcome == 0) return {};
  errno = outcome;
  return error_from_errno("bringing up the queue pair for datagrams of %s",
                          options_.device->kind().name)
      .set_cure("see the kernel's log");
}

void DatagramQueue::set_peer(uint16_t index, const DatagramPeer& address) noexcept {
  BP_ASSERT(is_open() && index < options_.peer_count_max);
  BP_KEEPS_VALID(*this);
  Peer& peer = peers_[index];
  const bool is_same = std::memcmp(&peer.address.gid, &address.gid, sizeof address.gid) == 0 &&
                       peer.address.lid == address.lid;
  if (peer.handle != nullptr && !is_same) {
    ibv_destroy_ah(peer.handle);
    peer.handle = nullptr;
  }
  peer.address = address;
  peer.is_connected = true;
  if (address.queue == 0 || peer.handle != nullptr) return;
  const VerbsPort& port = options_.device->port();
  peer.handle = make_handle(address, port.gid_index);
  if (peer.handle != nullptr || !port.is_ethernet) return;
  const uint8_t gid_index =
      find_gid_index(options_.device->context(), port);  // it may have changed
  if (gid_index != port.gid_index) peer.handle = make_handle(address, gid_index);
}

ibv_ah* DatagramQueue::make_handle(const DatagramPeer& peer, uint8_t gid_index) const noexcept {
  const VerbsPort& port = options_.device->port();
  ibv_ah_attr attributes = {};
  attributes.port_num = port.port;
  attributes.dlid = peer.lid;
  if (port.is_ethernet) {
    attributes.is_global = 1;
    attributes.grh.dgid = peer.gid;
    attributes.grh.sgid_index = gid_index;
    attributes.grh.hop_limit = 64;
  }
  return ibv_create_ah(options_.device->domain(), &attributes);
}

}  // namespace bedplate
