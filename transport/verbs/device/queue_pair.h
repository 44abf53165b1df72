// One reliable queue pair: made once, then connected, broken and reconnected any number of times. A
// reconnect makes no new queue pair, except by renew() on devices that need it.
//
// It handles states and addresses; send_queue_datapath.h has the requests. A part of VerbsProvider;
// programs make queue pairs of their own with libibverbs. Threads: one at a time. Source of the
// states: ibv_modify_qp(3), InfiniBand specification volume 1, 10.3.
//
// Invariants: 1. It connects only from RESET, as made or after reset(), through the states in their
// order; ERROR and RESET follow any state. (can_follow) 2. The initial values of both ends fit
// their fields: packet numbers of 24 bits, an MTU that exists, at least one read. (connect) 3. A
// queue pair that exists has a device, the queues that it was made with, and a number of 24 bits.
// 4. Its state, as this end knows it, is one that bring_to() can set. (is_valid, around each change
// of state)
#pragma once

#include <cstdint>

#include <infiniband/verbs.h>

#include "platform/result.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {

// Whether `mtu` is one of the five MTUs of the specification.
inline bool is_mtu(ibv_mtu mtu) noexcept { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096; }

inline constexpr uint32_t kPacketNumberMask = 0xff'ffff;  // 24 bits

// Whether a queue pair may go from `from` to `to`. ERROR and RESET are possible at any time.
constexpr bool can_follow(ibv_qp_state from, ibv_qp_state to) noexcept {
  switch (to) {
    case IBV_QPS_RESET:
    case IBV_QPS_ERR: return true;
    case IBV_QPS_INIT: return from == IBV_QPS_RESET;
    case IBV_QPS_RTR: return from == IBV_QPS_INIT;
    case IBV_QPS_RTS: return from == IBV_QPS_RTR;
    default: return false;
  }
}

// The retries of lost packets.
struct RetryOptions {
  // The wait for an answer: 4.096 us * 2^timeout_log2 (17: half a second). At most 31.
  uint8_t timeout_log2 = 16;
  uint8_t count = 6;  // at most 7; on some devices 7 means no limit (device_quirks.h)
};

struct QueuePairOptions {
  ibv_cq* completions = nullptr;
  ibv_srq* receives = nullptr;  // nullptr: one receive of its own (for the probe)
  uint32_t send_count_max = 0;
  uint32_t send_pieces_max = 1;
  uint32_t inline_bytes = 0;        // asked for; the device may give less
  QueuePairOwner* owner = nullptr;  // gets the device's events about this queue pair
};

// One end's address and parameters, as told to the other end.
struct QueuePairAddress {
  uint32_t number = 0;
  uint32_t packet_number = 0;  // of the first packet that it sends
  ibv_gid gid = {};
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_256;
  uint8_t reads_max = 1;  // reads and atomics that may be under way towards it
};

class QueuePair {
 public:
  QueuePair() noexcept = default;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair() { destroy(); }

  // Errors: the device's. Before the seal. `device`, and all that `options` names, outlive this.
  Result<void> create(const VerbsDevice& device, const QueuePairOptions& options) noexcept;
  // Requires: no thread waits for its completions; no window is bound to it.
  void destroy() noexcept;

  // This end's address, for the peer. The first packet has `packet_number`, and packets have at
  // most `mtu`.
  QueuePairAddress address(uint32_t packet_number, ibv_mtu mtu) const noexcept;

  // Brings it from RESET through INIT and RTR to RTS, towards `peer`, with the smaller of both
  // MTUs. `packet_number`, `mtu`: as given to address(). Errors: the device's, with the state.
  // After an error, reset() comes before the next try.
  Result<void> connect(uint32_t packet_number, ibv_mtu mtu, const QueuePairAddress& peer,
                       const RetryOptions& retry) noexcept;
  // Whether the device or fail() has moved it to ERROR. False if the query fails. Cost: a system
  // call.
  bool is_failed() const noexcept;
  // Moves it to ERROR: posted requests come back as flushed. Allowed in any state.
  void fail() noexcept;
  // Moves it to RESET. From then on the queue pair reaches no memory, neither for this end nor for
  // the peer, and has no more completions. Errors: the device's, which is gone.
  Result<void> reset() noexcept;
  // Makes the queue pair anew if RESET leaves state of the earlier connection behind
  // (DeviceQuirks::reset_keeps_reads). Does nothing on other devices. Requires: it is in RESET; no
  // window is bound to it. Errors: as create(); it then has no queue pair.
  Result<void> renew() noexcept;

  ibv_qp* handle() const noexcept { return handle_; }
  // 0: there is no queue pair, because it was not made, or not made anew.
  uint32_t number() const noexcept { return handle_ == nullptr ? 0 : handle_->qp_num; }
  // The most bytes of an inline request, as the device gave them.
  uint32_t inline_bytes() const noexcept { return inline_bytes_; }

  // Threads: the thread that may change its state.
  bool is_valid() const noexcept;

 private:
  // Errors: the device's, with the `name` of the state.
  Result<void> bring_to(ibv_qp_attr& attributes, int mask, const char* name) noexcept;
  Result<void> to_init() noexcept;
  Result<void> to_ready_to_receive(ibv_mtu mtu, const QueuePairAddress& peer,
                                   uint8_t gid_index) noexcept;
  Result<void> to_ready_to_send(uint32_t packet_number, const QueuePairAddress& peer,
                                const RetryOptions& retry) noexcept;

  const VerbsDevice* device_ = nullptr;
  QueuePairOptions options_;
  ibv_qp* handle_ = nullptr;
  uint32_t inline_bytes_ = 0;
};

}  // namespace bedplate
