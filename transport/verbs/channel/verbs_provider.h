// The verbs provider: active messages, loans, puts, gets and atomics between appliances.
//
// One object for one shard. All that it needs is made before the seal: a queue pair for each peer
// of the list, one shared receive queue and one completion queue for all, and the memory for
// messages, which is the caller's (verbs_memory_bytes). docs/verbs.md has the protocol. Services
// have it made for them by [verbs]; a process that joined makes its own (joined_verbs.h).
//
// verbs_provider.cc makes it, looks after links and sleeps; verbs_provider_datapath.cc has the part
// of sending and receiving that all peers share. VerbsEndpoint has the part of one peer
// (verbs_endpoint.h); link_connector is the thread that connects them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/counter.h"
#include "transport/messages/provider.h"
#include "transport/registration.h"
#include "transport/verbs/channel/verbs_counters.h"
#include "transport/verbs/channel/verbs_endpoint.h"
#include "transport/verbs/channel/verbs_parts.h"
#include "transport/verbs/channel/verbs_shape.h"
#include "transport/verbs/connect/link_connector.h"
#include "transport/verbs/device/verbs_device.h"
#include "transport/verbs/peer_state.h"

namespace bedplate {

struct VerbsPeer {
  std::string name;
  std::optional<SocketAddress> address = {};  // nothing: it dials
};

struct VerbsProviderOptions {
  VerbsDevice* device = nullptr;   // it and what follows outlive the provider
  const KeyTable* keys = nullptr;  // of the pool with this device
  const PinnedPool* pool = nullptr;
  std::span<std::byte> memory = {};   // of the pool; verbs_memory_bytes, on a page
  std::string name = {};              // of this appliance's shard; unique among its peers
  std::vector<VerbsPeer> peers = {};  // at most peer_count_max
  std::optional<SocketAddress> listen = {};
  VerbsShape shape = {};
  LinkTiming timing = {};
  bool connects_by_manager = false;   // the RDMA connection manager's, and no socket
  bool trust_windows = false;         // also of a device that does not enforce them
  Doorbell* loop_bell = nullptr;      // of the event loop that polls; nullptr: polled by hand
  VerbsCounters* counters = nullptr;  // may be nullptr
};

// Threads: the shard's that polls, unless another is named. Nothing is allocated after create().
class VerbsProvider final : public Provider {
 public:
  // How many exports of its own it makes at most, of verbs_shared_bytes in all.
  static constexpr uint32_t kExportCount = 2;

  VerbsProvider() noexcept = default;
  VerbsProvider(const VerbsProvider&) = delete;
  VerbsProvider& operator=(const VerbsProvider&) = delete;
  // Peers notice at once. Messages that they had not consumed are lost to them. Completions that
  // are pending do not come any more: a caller that wants them polls for them first.
  ~VerbsProvider() override;

  // The demands of a provider of this shape on a device that has `limits`: each with its limit.
  static std::vector<VerbsDemand> demands(const VerbsShape& shape, const ibv_device_attr& limits,
                                          bool uses_windows);

  // Requires: before the seal; called once; check_shape(options.shape). `dispatcher` (the
  // messenger's) outlives this. Errors (kSystem): a limit of the device that the shape exceeds,
  // with both numbers; the device's; it cannot listen. After an error it can only be destroyed.
  Result<void> create(const VerbsProviderOptions& options, const Dispatcher& dispatcher);

  const char* name() const noexcept override { return "verbs"; }
  // By `peer.name`. It returns at once: until the connection is there, sends say kAgain; after
  // LinkTiming::give_up_ns without one kGone. Errors (kSystem): no peer has this name.
  Result<Endpoint*> connect(const PeerAddress& peer) override;
  uint32_t poll(uint32_t budget) noexcept override;
  void release(const Loan& loan) noexcept override;
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;
  void sleep(uint64_t timeout_ns) noexcept override;
  bool can_sleep() const noexcept override { return true; }

  // Sends `payload` to the peer of `to`, one of this provider's endpoints, without a promise: it
  // may be lost, or come out of order. The peer gets it as an active message `id`.
  // Returns what DatagramQueue::send does.
  SendStatus send_datagram(const Endpoint& to, AmId id,
                           std::span<const std::byte> payload) noexcept;
  // How many bytes one may have; 0: none can be sent now.
  uint32_t datagram_bytes_max(const Endpoint& to) const noexcept;

  // In the order of the options. Threads: any.
  PeerState peer_state(uint32_t index) const noexcept;

  // Whether all accepted messages have reached their peers, as far as there are connections. Call
  // it before the provider ends, and poll, until it is true: it may post a read to find out.
  bool settle() noexcept;

  // Whether messages can be sent to `endpoint`, one of this provider's, now.
  static bool is_connected(const Endpoint& endpoint) noexcept;
  // Invariants, looked at around each poll: 1. Endpoints that are dirty, and no others, are in its
  // list, once. 2. draining_count_ counts those that drain. 3. Receives that are listed are fewer
  // than a batch. 4. Its bounce buffers are valid.
  bool is_valid() const noexcept;

  // How many handshakes it has refused. Threads: any.
  uint64_t refused_count() const noexcept { return parts_.connector.refused_count(); }

 private:
  static constexpr uint32_t kReceiveTag = UINT32_MAX;  // upper half of the wr_id of receives
  void set_parts(const VerbsProviderOptions& options, const Dispatcher& dispatcher);
  Result<void> open_loan_bounce(const PinnedPool& pool, std::span<std::byte> memory);
  Result<void> make_queues();
  Result<void> make_endpoints(std::span<const VerbsPeer> peers);

  std::byte* receive_buffer(uint32_t index) const noexcept {
    BP_DCHECK(index <= receive_count());
    return memory_.data() + uint64_t{index} * parts_.shape.message_bytes;
  }
  uint32_t receive_count() const noexcept { return parts_.shape.receive_count(); }

  void take_event() noexcept;

  // verbs_provider_datapath.cc
  uint32_t take_completions(uint32_t budget) noexcept;
  void handle_completion(const ibv_wc& completion) noexcept;
  void handle_receive(const ibv_wc& completion, uint32_t buffer) noexcept;
  void handle_bad_receive(const ibv_wc& completion) noexcept;
  void repost(uint32_t buffer) noexcept;
  void post_receives() noexcept;
  void post_sends() noexcept;
  VerbsEndpoint* sender_of(const ibv_wc& completion, uint16_t place) noexcept;

  void look_at_links() noexcept;
  // Returns how much has ended.
  uint32_t look_at_draining() noexcept;
  // The device does nothing any more: all connections end, for good.
  void lose_device(const char* why) noexcept;

  std::span<std::byte> memory_;
  VerbsCounters own_counters_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_srq* receives_ = nullptr;
  VerbsParts parts_;
  std::vector<std::unique_ptr<VerbsEndpoint>> endpoints_;
  bool is_armed_ = false;  // an event was asked for, and has not been read
  Doorbell bell_;
  uint32_t seen_changes_ = 0;
  uint32_t listed_receives_ = 0;
  ibv_recv_wr receive_list_[kCompletionBatch] = {};
  ibv_sge receive_pieces_[kCompletionBatch] = {};
};

}  // namespace bedplate
