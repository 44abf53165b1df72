// The verbs provider: active messages, loans, puts, gets and atomics between appliances.
//
// Each shard has a provider of its own. The provider makes its objects before the seal: a queue
// pair for each configured peer, one shared receive queue and one completion queue for all peers,
// and a queue pair for datagrams. The caller gives the memory for messages (verbs_memory_bytes).
// docs/verbs.md has the protocol. [verbs] makes a provider for services; a process that joined the
// pool makes its own (joined_verbs.h).
//
// verbs_provider.cc creates the provider, checks links and sleeps. verbs_provider_datapath.cc polls
// the queues that all peers share. VerbsEndpoint handles one peer (verbs_endpoint.h).
// LinkConnector is the thread that connects the peers (link_connector.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <infiniband/verbs.h>

#include "transport/loop/doorbell.h"
#include "transport/messages/provider.h"
#include "transport/registration.h"
#include "transport/sockets/socket_address.h"
#include "transport/verbs/channel/verbs_counters.h"
#include "transport/verbs/channel/verbs_shape.h"
#include "transport/verbs/connect/link_connector_options.h"
#include "transport/verbs/device/verbs_device.h"
#include "transport/verbs/peer_state.h"

namespace bedplate {

class PinnedPool;
class VerbsEndpoint;
struct VerbsParts;

struct VerbsPeer {
  std::string name;
  std::optional<SocketAddress> address = {};  // nothing: the peer dials
};

struct VerbsProviderOptions {
  VerbsDevice* device = nullptr;   // all objects that the options point to outlive the provider
  const KeyTable* keys = nullptr;  // of the pool with this device
  const PinnedPool* pool = nullptr;
  // A part of the pool, within one region; at least verbs_memory_bytes; page aligned.
  std::span<std::byte> memory = {};
  // The name of this appliance's shard, 1 to 31 bytes; unique among its peers.
  std::string name = {};
  std::vector<VerbsPeer> peers = {};         // at most peer_count_max
  std::optional<SocketAddress> listen = {};  // nothing: no peer can dial
  VerbsShape shape = {};
  LinkTiming timing = {};
  bool connects_by_manager = false;  // by the RDMA connection manager, not a socket
  // Uses memory windows even if the device does not enforce their bounds.
  bool trust_windows = false;
  Doorbell* loop_bell = nullptr;      // of the event loop that polls; nullptr: polled by hand
  VerbsCounters* counters = nullptr;  // may be nullptr
};

// Threads: the polling shard's, unless stated otherwise. It allocates nothing after create().
// libibverbs may, when a connection begins or ends (QueuePair::renew, DatagramQueue::set_peer).
class VerbsProvider final : public Provider {
 public:
  // The most exports that the provider makes itself, of verbs_shared_bytes in all.
  static constexpr uint32_t kExportCount = 2;

  VerbsProvider();
  VerbsProvider(const VerbsProvider&) = delete;
  VerbsProvider& operator=(const VerbsProvider&) = delete;
  // Peers notice at once. Messages that they have not consumed are lost. Pending completions are
  // not called: a caller that needs them polls for them first.
  ~VerbsProvider() override;

  // The objects that a provider of this shape needs of a device with `limits`, each with its limit.
  // Requires: check_shape(shape).
  static std::vector<VerbsDemand> demands(const VerbsShape& shape, const ibv_device_attr& limits,
                                          bool uses_windows);

  // Requires: before the seal; called once; check_shape(options.shape). `dispatcher` (the
  // messenger's) outlives this. Errors (kSystem): the shape exceeds a limit of the device, with
  // both numbers; the device's; VerbsDevice::add_export's; LinkConnector::start's. After an error
  // the provider can only be destroyed.
  Result<void> create(const VerbsProviderOptions& options, const Dispatcher& dispatcher);

  const char* name() const noexcept override { return "verbs"; }
  // Finds the peer by `peer.name`, and returns at once. Sends return kAgain until the connection is
  // up, and kGone after LinkTiming::give_up_ns without one. Ownership: the endpoint is the
  // provider's. Errors (kSystem): no peer has this name, or it is nullptr.
  Result<Endpoint*> connect(const PeerAddress& peer) override;
  uint32_t poll(uint32_t budget) noexcept override;
  void release(const Loan& loan) noexcept override;
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;
  void sleep(uint64_t timeout_ns) noexcept override;
  bool can_sleep() const noexcept override { return true; }
  void follow(const ThreadOwner& loop) noexcept override;

  // Sends `payload` to the peer of `to`, an endpoint of this provider, without a promise: it may be
  // lost, or come out of order. The peer gets it as an active message `id`. Returns as
  // DatagramQueue::send; also kGone as the other sends do, and kRefused if this provider has no
  // datagrams.
  SendStatus send_datagram(const Endpoint& to, AmId id,
                           std::span<const std::byte> payload) noexcept;
  // The most bytes of one datagram; 0: none can be sent now.
  uint32_t datagram_bytes_max(const Endpoint& to) const noexcept;

  // `index`: in the order of the options. Threads: any.
  PeerState peer_state(uint32_t index) const noexcept;

  // Whether all accepted messages and operations have ended, and have reached their peers. Peers
  // without a connection do not count. It may list a read that finds out. Before the provider ends,
  // call settle() and poll() in turn until it returns true.
  bool settle() noexcept;

  // Whether messages can be sent now to `endpoint`, which is this provider's.
  static bool is_connected(const Endpoint& endpoint) noexcept;
  // Invariants, checked around each poll: 1. The dirty list holds exactly the dirty endpoints, each
  // once. 2. draining_count counts the endpoints that drain. 3. Fewer receives are listed than a
  // batch holds. 4. The shared parts are valid.
  bool is_valid() const noexcept;

  // As LinkConnector::refused_count. Threads: any.
  uint64_t refused_count() const noexcept;

 private:
  static constexpr uint32_t kReceiveTag = UINT32_MAX;  // upper half of the wr_id of receives
  void set_parts(const VerbsProviderOptions& options, const Dispatcher& dispatcher);
  Result<void> open_loan_bounce(const PinnedPool& pool, std::span<std::byte> memory);
  Result<void> make_queues();
  Result<void> make_endpoints(std::span<const VerbsPeer> peers);

  void take_event() noexcept;

  // verbs_provider_datapath.cc
  std::byte* receive_buffer(uint32_t index) const noexcept;
  uint32_t receive_count() const noexcept;
  uint32_t take_completions(uint32_t budget) noexcept;
  void handle_completion(const ibv_wc& completion) noexcept;
  void handle_receive(const ibv_wc& completion, uint32_t buffer) noexcept;
  void handle_bad_receive(const ibv_wc& completion) noexcept;
  void repost(uint32_t buffer) noexcept;
  void post_receives() noexcept;
  void post_sends() noexcept;
  VerbsEndpoint* sender_of(const ibv_wc& completion, uint16_t index) noexcept;

  void look_at_links() noexcept;
  // Returns how many completions and connections have ended.
  uint32_t look_at_draining() noexcept;
  // The device has failed: all connections end for good.
  void lose_device(const char* why) noexcept;

  std::span<std::byte> memory_;
  VerbsCounters own_counters_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* completions_ = nullptr;
  ibv_srq* receives_ = nullptr;
  const std::unique_ptr<VerbsParts> parts_;  // never nullptr
  std::vector<std::unique_ptr<VerbsEndpoint>> endpoints_;
  bool is_armed_ = false;  // an event was requested, and has not been read
  Doorbell bell_;
  uint32_t seen_changes_ = 0;
  uint32_t listed_receives_ = 0;
  ibv_recv_wr receive_list_[kCompletionBatch] = {};
  ibv_sge receive_pieces_[kCompletionBatch] = {};
};

}  // namespace bedplate
