// The peers of an appliance ([verbs]): this class opens the device, registers the pool with it,
// opens exports (with remote = "read", also the heap and segment 0), and exchanges messages with
// peers on one shard.
//
// If [verbs] is not required and no device can be used, it logs the errors and a warning. It takes
// the planned memory, but no peer reaches it.
//
// Invariants, checked by is_valid(): 1. A provider exists only with a device, and with memory
// carved for it. 2. Once the loop has the provider, each peer has its counters. 3. It is drained
// only after a request. By the assertions of functions: 4. open() and create() are called once. 5.
// The loop's thread owns the provider while the loop runs.
//
// Part of libbedplate-verbs.a: the runtime uses it as Peers, through bedplate_peers_part (peers.h).
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/peers.h"
#include "apps/boot/runtime_counters.h"
#include "apps/peers/verbs_settings.h"
#include "transport/registration.h"
#include "transport/verbs/channel/verbs_provider.h"
#include "transport/verbs/device/verbs_device.h"

namespace bedplate {

class VerbsPeers final : public Peers, public PollSource {
 public:
  VerbsPeers() noexcept = default;
  ~VerbsPeers() override { close(); }

  void open(const Configuration& configuration, const AppliancePlan& plan,
            std::vector<Error>* problems) override;
  Result<void> create(const Configuration& configuration, PinnedPool& pool, EventLoop& loop,
                      ShardMessenger* messenger, CountersFile& file) override;
  void begin() noexcept override;
  void request_drain() noexcept override;
  bool is_drained() const noexcept override { return is_drained_.load(std::memory_order_acquire); }
  void close() noexcept override;
  void refresh_counters() noexcept override;
  bool is_there() const noexcept override { return provider_ != nullptr; }
  ProcessTerms terms() const noexcept override;
  VerbsProvider* datagrams() noexcept override {
    return has_datagrams_ ? provider_.get() : nullptr;
  }
  KeyedRange key(const void* memory, uint64_t bytes) const noexcept override {
    return keys_.key(memory, bytes);
  }
  ibv_pd* domain() const noexcept override {
    return device_ == nullptr ? nullptr : device_->domain();
  }
  std::span<std::byte> exported(std::string_view name) const noexcept override;

  // PollSource: checks whether a drain is complete.
  uint32_t poll(uint32_t budget) noexcept override;

  bool is_valid() const noexcept;

 private:
  struct Export {
    std::string name;
    std::span<std::byte> memory;
  };

  void carve(const VerbsSettings& settings, PinnedPool& pool);
  Result<void> open_memory(const VerbsSettings& settings, PinnedPool& pool);
  Result<void> connect_all(const Configuration& configuration, PinnedPool& pool, EventLoop& loop,
                           Messenger& messenger, PeersCounters& counters);

  std::string name_;  // of the appliance
  bool has_datagrams_ = false;
  std::unique_ptr<VerbsDevice> device_;
  KeyTable keys_;
  std::span<std::byte> memory_;  // the provider's
  std::vector<Export> exports_;
  std::vector<VerbsPeer> peers_;
  std::unique_ptr<VerbsProvider> provider_;
  EventLoop* loop_ = nullptr;
  PeersCounters* counters_ = nullptr;
  std::vector<PeerCounters*> peer_counters_;
  std::atomic<bool> must_drain_{false};
  std::atomic<bool> is_drained_{false};
};

}  // namespace bedplate
