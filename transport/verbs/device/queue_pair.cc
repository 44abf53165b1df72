#include "transport/verbs/device/queue_pair.h"

#include <algorithm>
#include <cerrno>

namespace bedplate {
namespace {

// Receiver not ready: 20 ms, six times; seven would retry for ever. Credits prevent it, unless a
// peer ignores them and uses up all receives: then the others wait until that peer is cut off.
constexpr uint8_t kMinRnrTimer = 22;
constexpr uint8_t kRnrRetryCount = 6;
constexpr uint8_t kReadsMax = 16;

uint8_t reads_max(int limit) noexcept {
  return static_cast<uint8_t>(std::clamp(limit, 1, int{kReadsMax}));
}

bool is_packet_number(uint32_t number) noexcept { return number <= kPacketNumberMask; }

}  // namespace

bool QueuePair::is_valid() const noexcept {
  if (device_ != nullptr && options_.completions == nullptr) return false;
  if (handle_ == nullptr) return true;
  if (device_ == nullptr || handle_->send_cq != options_.completions) return false;
  if (handle_->srq != options_.receives || number() > kPacketNumberMask) return false;
  switch (handle_->state) {
    case IBV_QPS_RESET:
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
    case IBV_QPS_RTS:
    case IBV_QPS_ERR: return true;
    default: return false;
  }
}

// libibverbs records the new state if the device has accepted it.
Result<void> QueuePair::bring_to(ibv_qp_attr& attributes, int mask, const char* name) noexcept {
  BP_DCHECK(handle_ != nullptr && (mask & IBV_QP_STATE) != 0);
  BP_DCHECK(can_follow(handle_->state, attributes.qp_state));
  BP_KEEPS_VALID(*this);
  const int outcome = ibv_modify_qp(handle_, &attributes, mask);
  if (outcome == 0) {
    BP_DCHECK(handle_->state == attributes.qp_state);
    return {};
  }
  errno = outcome;
  const bool looks_for_peer = attributes.qp_state == IBV_QPS_RTR;
  return error_from_errno("bringing a queue pair of %s to %s", device_->kind().name, name)
      .set_cure(
          "%ssee the kernel's log",
          looks_for_peer ? "check that this device's address has a route to the peer's; " : "");
}

Result<void> QueuePair::create(const VerbsDevice& device,
                               const QueuePairOptions& options) noexcept {
  BP_ASSERT(handle_ == nullptr);
  BP_DCHECK(options.completions != nullptr && options.send_count_max > 0);
  ibv_qp_init_attr attributes = {};
  attributes.send_cq = options.completions;
  attributes.recv_cq = options.completions;
  attributes.srq = options.receives;
  attributes.cap.max_send_wr = options.send_count_max;
  attributes.cap.max_recv_wr = options.receives == nullptr ? 1 : 0;
  attributes.cap.max_send_sge = options.send_pieces_max;
  attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = options.inline_bytes;
  attributes.qp_type = IBV_QPT_RC;
  attributes.qp_context = options.owner;
  handle_ = ibv_create_qp(device.domain(), &attributes);
  // A device may grant its limit or refuse, if asked for more inline bytes than it has.
  for (uint32_t bytes = options.inline_bytes; handle_ == nullptr && errno == EINVAL && bytes > 0;) {
    attributes.cap.max_inline_data = bytes /= 2;
    handle_ = ibv_create_qp(device.domain(), &attributes);
  }
  if (handle_ == nullptr) {
    return error_from_errno("making a queue pair of %s with %u send requests of %u pieces",
                            device.kind().name, options.send_count_max, options.send_pieces_max)
        .set_cure("make max_peers, the window or the operations of a peer smaller");
  }
  device_ = &device;
  options_ = options;
  inline_bytes_ = attributes.cap.max_inline_data;
  BP_DCHECK(handle_->state == IBV_QPS_RESET);
  BP_DCHECK_SLOW(is_valid());
  return {};
}

void QueuePair::destroy() noexcept {
  BP_DCHECK_SLOW(is_valid());
  if (handle_ != nullptr) ibv_destroy_qp(handle_);
  handle_ = nullptr;
}

QueuePairAddress QueuePair::address(uint32_t packet_number, ibv_mtu mtu) const noexcept {
  BP_DCHECK(handle_ != nullptr && is_packet_number(packet_number) && is_mtu(mtu));
  const VerbsPort& port = device_->port();
  return {number(), packet_number, port.gid,
          port.lid, mtu,           reads_max(device_->limits().max_qp_rd_atom)};
}

Result<void> QueuePair::connect(uint32_t packet_number, ibv_mtu mtu, const QueuePairAddress& peer,
                                const RetryOptions& retry) noexcept {
  BP_DCHECK(handle_ != nullptr && handle_->state == IBV_QPS_RESET);
  BP_DCHECK(is_packet_number(packet_number) && is_packet_number(peer.packet_number));
  BP_DCHECK(is_mtu(mtu) && is_mtu(peer.mtu) && peer.reads_max > 0);
  BP_TRY(to_init());
  const VerbsPort& port = device_->port();
  auto ready = to_ready_to_receive(mtu, peer, port.gid_index);
  if (!ready.ok()) {
    const uint8_t index = find_gid_index(device_->context(), port);
    if (index == port.gid_index) return ready.error();
    BP_TRY(to_ready_to_receive(mtu, peer, index));
  }
  return to_ready_to_send(packet_number, peer, retry);
}

Result<void> QueuePair::to_init() noexcept {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_->port().port;
  attributes.qp_access_flags =
      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  return bring_to(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                  "INIT");
}

Result<void> QueuePair::to_ready_to_receive(ibv_mtu mtu, const QueuePairAddress& peer,
                                            uint8_t gid_index) noexcept {
  const VerbsPort& port = device_->port();
  BP_DCHECK(port.is_usable() && peer.number <= kPacketNumberMask);
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(mtu, peer.mtu);
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.packet_number;
  attributes.max_dest_rd_atomic = reads_max(device_->limits().max_qp_rd_atom);
  attributes.min_rnr_timer = kMinRnrTimer;
  attributes.ah_attr.port_num = port.port;
  attributes.ah_attr.dlid = peer.lid;
  if (port.is_ethernet) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = peer.gid;
    attributes.ah_attr.grh.sgid_index = gid_index;
    attributes.ah_attr.grh.hop_limit = 64;
  }
  return bring_to(attributes,
                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                  "RTR (ready to receive)");
}

Result<void> QueuePair::to_ready_to_send(uint32_t packet_number, const QueuePairAddress& peer,
                                         const RetryOptions& retry) noexcept {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = retry.timeout_log2;
  BP_DCHECK(retry.timeout_log2 < 32 && retry.count <= 7);  // 5 bits and 3
  attributes.retry_cnt = retry.count;
  attributes.rnr_retry = kRnrRetryCount;
  attributes.sq_psn = packet_number;
  attributes.max_rd_atomic =
      std::min(peer.reads_max, reads_max(device_->limits().max_qp_init_rd_atom));
  return bring_to(attributes,
                  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                  "RTS (ready to send)");
}

bool QueuePair::is_failed() const noexcept {
  BP_DCHECK(handle_ != nullptr);
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr made = {};
  return ibv_query_qp(handle_, &attributes, IBV_QP_STATE, &made) == 0 &&
         attributes.qp_state == IBV_QPS_ERR;
}

void QueuePair::fail() noexcept {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_ERR;
  (void)bring_to(attributes, IBV_QP_STATE, "ERROR");
}

Result<void> QueuePair::reset() noexcept {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RESET;
  return bring_to(attributes, IBV_QP_STATE, "RESET");
}

Result<void> QueuePair::renew() noexcept {
  BP_DCHECK(handle_ != nullptr && handle_->state == IBV_QPS_RESET);
  if (!device_->quirks().reset_keeps_reads) return {};
  destroy();
  return create(*device_, options_);
}

}  // namespace bedplate
