// DatagramQueue's data path: sends and receives.
#include "transport/verbs/channel/datagram_queue_datapath.h"

#include <algorithm>
#include <cstring>

namespace bedplate {

void DatagramQueue::forget_peer(uint16_t index) noexcept {
  BP_ASSERT(is_open() && index < options_.peer_count_max);
  BP_KEEPS_VALID(*this);
  peers_[index].is_connected = false;
}

uint32_t DatagramQueue::bytes_max(uint16_t index) const noexcept {
  BP_DCHECK(is_open() && index < options_.peer_count_max);
  const Peer& peer = peers_[index];
  if (!peer.is_connected || peer.address.queue == 0 || peer.handle == nullptr) return 0;
  const ibv_mtu mtu = std::min(peer.address.mtu, options_.device->port().mtu);
  return (128u << mtu) - static_cast<uint32_t>(sizeof(DatagramHeader));
}

SendStatus DatagramQueue::send(uint16_t index, AmId id,
                               std::span<const std::byte> payload) noexcept {
  BP_DCHECK(is_open() && index < options_.peer_count_max);
  BP_KEEPS_VALID(*this);
  const Peer& peer = peers_[index];
  if (!peer.is_connected) return SendStatus::kAgain;
  if (peer.address.queue == 0 || peer.handle == nullptr) return SendStatus::kRefused;
  if (payload.size() > bytes_max(index)) return SendStatus::kTooLong;
  if (has_failed_ || next_ - ended_ == options_.count) return SendStatus::kAgain;
  std::byte* buffer = send_buffer(next_);
  BP_DCHECK(sizeof(DatagramHeader) + payload.size() <= kSendBytes);
  const DatagramHeader header = {peer.address.own_mark, peer.address.index, id, 0};
  std::memcpy(buffer, &header, sizeof header);
  std::copy(payload.begin(), payload.end(), buffer + sizeof header);
  ibv_sge piece = {reinterpret_cast<uintptr_t>(buffer),
                   static_cast<uint32_t>(sizeof header + payload.size()), options_.memory_key};
  ibv_send_wr request = {};
  request.wr_id = uint64_t{kTag} << 32 | kSendBit | (next_ & (kSendBit - 1));
  request.opcode = IBV_WR_SEND;
  // A completion means that all sends before it have ended, too: one in a quarter is enough.
  if (next_ % (options_.count / 4) == options_.count / 4 - 1) {
    request.send_flags = IBV_SEND_SIGNALED;
  }
  request.sg_list = &piece;
  request.num_sge = 1;
  request.wr.ud = {peer.handle, peer.address.queue, peer.address.key};
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(queue_pair_, &request, &refused) != 0) {
    options_.counters->failed.add(1);
    return SendStatus::kAgain;
  }
  ++next_;
  options_.counters->sent.add(1);
  return SendStatus::kDone;
}

void DatagramQueue::end_sends(const ibv_wc& completion) noexcept {
  BP_DCHECK((completion.wr_id & kSendBit) != 0 && completion.wr_id >> 32 == kTag);
  const auto number = static_cast<uint32_t>(completion.wr_id) & (kSendBit - 1);
  const uint32_t before = (number - ended_) & (kSendBit - 1);
  if (before >= next_ - ended_) return;  // sent before the queue pair was renewed
  ended_ += before + 1;
  if (completion.status == IBV_WC_SUCCESS) return;
  options_.counters->failed.add(1);
  if (has_failed_) return;
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;  // an error has put it into SQE: it sends nothing
  ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
}

const std::byte* DatagramQueue::check(const ibv_wc& completion, uint32_t index,
                                      DatagramHeader* header) noexcept {
  const std::byte* data = receive_buffer(index) + kPrefixBytes;
  if (completion.byte_len < kPrefixBytes + sizeof *header) {
    options_.counters->malformed.add(1);
    return nullptr;
  }
  std::memcpy(header, data, sizeof *header);
  const Peer* peer = header->index < options_.peer_count_max ? &peers_[header->index] : nullptr;
  if (peer == nullptr || !peer->is_connected || completion.src_qp != peer->address.queue ||
      header->mark != peer->address.peer_mark) {
    options_.counters->strange.add(1);
    return nullptr;
  }
  if (header->zero != 0) {
    options_.counters->malformed.add(1);
    return nullptr;
  }
  return data + sizeof *header;
}

// A queue pair in error returns each posted receive at once. So receives are held back until all
// have returned.
void DatagramQueue::take_back() noexcept {
  BP_DCHECK(taken_back_ < options_.count);
  if (!has_failed_) {
    has_failed_ = true;
    ibv_qp_attr attributes = {};
    attributes.qp_state = IBV_QPS_ERR;  // also if only one receive failed
    ibv_modify_qp(queue_pair_, &attributes, IBV_QP_STATE);
  }
  if (++taken_back_ == options_.count) renew();
}

void DatagramQueue::post_receive(uint32_t index) noexcept {
  ibv_sge piece = {reinterpret_cast<uintptr_t>(receive_buffer(index)), kReceiveBytes,
                   options_.memory_key};
  ibv_recv_wr request = {};
  request.wr_id = uint64_t{kTag} << 32 | index;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  ibv_post_recv(queue_pair_, &request, &refused);  // fails only if the device is lost
}

}  // namespace bedplate
