// Small datagrams to any peer through one queue pair (UD): no connection state in the device, no
// window, and no promise. Datagrams may be lost, and may come out of order. A datagram from a peer
// that is not connected, or from a stranger, is dropped and counted. A queue pair that fails is
// brought up again.
//
// It is made before the seal, with its buffers in the pool. A peer's address handle is made from
// its handshake, when its connection comes up, and kept while its address stays the same. A part of
// VerbsProvider (send_datagram). Threads: the shard's.
//
// Invariants, around each change: 1. No more sends are under way than there are buffers.
// 2. Receives are held back only after the queue pair has failed, and then at least one. 3. Each
// peer has a valid queue pair number and packet size. (is_valid) 4. A buffer that comes back is
// one of ours. (receive_buffer)
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <infiniband/verbs.h>

#include "platform/assert.h"
#include "transport/messages/endpoint.h"
#include "transport/verbs/channel/verbs_counters.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {

// A peer's address for datagrams, and the marks that both ends put into their datagrams.
struct DatagramPeer {
  uint32_t queue = 0;  // number of its queue pair; 0: the peer takes no datagrams
  uint32_t key = 0;    // of its queue: datagram_key() of its instance
  uint32_t own_mark = 0;
  uint32_t peer_mark = 0;
  uint16_t index = 0;  // this end's index at the peer
  ibv_gid gid = {};
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_256;
};

struct DatagramHeader {
  uint32_t mark;   // the sender's first packet number: only peers know it
  uint16_t index;  // the sender's index at the receiver
  AmId am;
  uint8_t zero;
};
static_assert(sizeof(DatagramHeader) == 8);

// The key of the queue of `instance` (Q_Key). The device drops datagrams with another key, and only
// peers know an instance.
constexpr uint32_t datagram_key(uint64_t instance) noexcept {
  return static_cast<uint32_t>(instance >> 32 ^ instance) & 0x7fff'ffff;
}

struct DatagramQueueOptions {
  const VerbsDevice* device = nullptr;
  ibv_cq* completions = nullptr;     // room for 2 * count
  std::span<std::byte> memory = {};  // memory_bytes(count), with `memory_key`
  uint32_t memory_key = 0;
  // The most sends under way, and the number of receives; a power of two, kCountMin to kCountMax.
  uint32_t count = 0;
  uint32_t peer_count_max = 0;
  uint32_t key = 0;
  DatagramCounters* counters = nullptr;  // may be nullptr
};

class DatagramQueue {
 public:
  static constexpr uint32_t kTag = UINT32_MAX - 1;  // upper half of each wr_id
  static constexpr uint32_t kCountMin = 4;
  static constexpr uint32_t kCountMax = 4096;
  static constexpr uint64_t memory_bytes(uint32_t count) noexcept {
    return uint64_t{count} * (kReceiveBytes + kSendBytes);
  }

  DatagramQueue() noexcept = default;
  DatagramQueue(const DatagramQueue&) = delete;
  DatagramQueue& operator=(const DatagramQueue&) = delete;
  ~DatagramQueue() { destroy(); }

  // Errors: the device's; then only destroy() may follow. Before the seal. Ownership: the objects
  // in `options` stay until destroy().
  Result<void> create(const DatagramQueueOptions& options) noexcept;
  // Call it before the completion queue is destroyed. Does nothing if it is not open.
  void destroy() noexcept;
  bool is_open() const noexcept { return queue_pair_ != nullptr; }
  // The number of the queue pair; 0: it is not open.
  uint32_t number() const noexcept { return is_open() ? queue_pair_->qp_num : 0; }

  // set_peer() connects the peer at `index`; forget_peer() disconnects it. Cost: a system call if
  // its address is new. If the device makes no address handle, sends to the peer say kRefused.
  void set_peer(uint16_t index, const DatagramPeer& peer) noexcept;
  void forget_peer(uint16_t index) noexcept;

  // Cost: a look at each peer.
  bool is_valid() const noexcept;

  // The most bytes of one datagram to the peer; 0: none can be sent now.
  uint32_t bytes_max(uint16_t index) const noexcept;
  // Copies the payload. Returns kDone once the device has it, which is no promise of delivery;
  // kAgain while the peer is not connected, too many sends are under way, the queue pair is brought
  // up again, or the device refuses the request; kTooLong; kRefused if the peer takes no datagrams,
  // or has no address handle. Cost: one doorbell.
  SendStatus send(uint16_t index, AmId id, std::span<const std::byte> payload) noexcept;

  // Handles a completion with kTag. Calls deliver(index, id, payload) for a datagram of a connected
  // peer. The payload is valid during the call only.
  template <typename Deliver>
  void handle(const ibv_wc& completion, Deliver deliver) noexcept {
    BP_KEEPS_VALID(*this);
    const auto index = static_cast<uint32_t>(completion.wr_id);
    if ((index & kSendBit) != 0) return end_sends(completion);
    if (BP_UNLIKELY(completion.status != IBV_WC_SUCCESS)) return take_back();
    DatagramHeader header;
    if (const std::byte* body = check(completion, index, &header); body != nullptr) {
      options_.counters->received.add(1);
      deliver(header.index, header.am,
              std::span(body, completion.byte_len - kPrefixBytes - sizeof header));
    }
    if (BP_UNLIKELY(has_failed_)) return take_back();
    post_receive(index);
  }

 private:
  static constexpr uint32_t kPrefixBytes = 40;  // the GRH, which the device writes before it
  static constexpr uint32_t kSendBytes = 4096;  // the largest MTU
  static constexpr uint32_t kReceiveBytes = 4160;
  static constexpr uint32_t kSendBit = 1u << 31;
  static constexpr uint32_t kQueueNumberMax = 0xff'ffff;  // 24 bits
  static_assert(kReceiveBytes >= kSendBytes + kPrefixBytes && kReceiveBytes % 64 == 0);

  struct Peer {
    DatagramPeer address;
    ibv_ah* handle = nullptr;
    bool is_connected = false;
  };

  Result<void> bring_up() noexcept;
  void post_receives() noexcept;
  ibv_ah* make_handle(const DatagramPeer& peer, uint8_t gid_index) const noexcept;
  // Holds a receive back, because the queue pair has failed. When all are held back, this renews
  // the queue pair.
  void take_back() noexcept;
  void renew() noexcept;
  // Returns the payload if a peer sent it. Otherwise counts the datagram and returns nullptr.
  const std::byte* check(const ibv_wc& completion, uint32_t index, DatagramHeader* header) noexcept;
  void end_sends(const ibv_wc& completion) noexcept;
  void post_receive(uint32_t index) noexcept;
  std::byte* receive_buffer(uint32_t index) const noexcept {
    BP_DCHECK(index < options_.count);
    return options_.memory.data() + uint64_t{index} * kReceiveBytes;
  }
  std::byte* send_buffer(uint32_t number) const noexcept {
    return options_.memory.data() + uint64_t{options_.count} * kReceiveBytes +
           uint64_t{number & (options_.count - 1)} * kSendBytes;
  }

  DatagramQueueOptions options_;
  ibv_qp* queue_pair_ = nullptr;
  std::unique_ptr<Peer[]> peers_;
  // Numbers of sends; they wrap.
  uint32_t next_ = 0;
  uint32_t ended_ = 0;
  uint32_t taken_back_ = 0;  // receives held back
  bool has_failed_ = false;
  DatagramCounters own_counters_;
};

}  // namespace bedplate
