// What an appliance does with [verbs]: it opens the device, registers the pool with it, opens
// exports (and the heap, with remote = "read"), and exchanges messages with its peers on one shard.
//
// Where [verbs] is not required and there is no device that can be used, all of this is a line in
// the log: the memory that was planned is there, and nobody reaches it.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "apps/boot/counters_file.h"
#include "apps/boot/runtime_counters.h"
#include "apps/boot/shard_messenger.h"
#include "pinned_pool/pinned_pool.h"
#include "transport/event_loop.h"
#include "transport/registration.h"
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_provider.h"

namespace bedplate {

class Peers final : public PollSource {
 public:
  Peers() noexcept = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers() override { close(); }

  // Opens the device and holds the plan against what it has. Takes nothing of the pool, and does
  // nothing without [verbs]. Appends what is missing to `problems`; what [verbs] required = false
  // lets go without goes to the log instead.
  void open(const Configuration& configuration, const AppliancePlan& plan,
            std::vector<Error>* problems);

  // Carves what was planned and, where there is a device, opens that anew, with the rights that the
  // process has by now, and makes all of it, as a way of `messenger`, which the shard's loop polls;
  // this is one more source of `loop`. All of them outlast close().
  // Requires: open(); `pool` is reserved by the configuration's plan and not sealed; `loop` does
  // not run yet. Errors: the device's, where it is required.
  Result<void> create(const Configuration& configuration, PinnedPool& pool, EventLoop& loop,
                      ShardMessenger* messenger, CountersFile& file);

  // Dials those whose address is known. Threads: the shard's, before its loop runs.
  void begin() noexcept;

  // Sends out what was accepted; peers that are not connected are not waited for. Threads: any.
  void request_drain() noexcept;
  bool is_drained() const noexcept { return is_drained_.load(std::memory_order_acquire); }

  // Peers notice, and nothing is registered any more. Requires: the loop does not run.
  void close() noexcept;

  // Brings up to date what nobody counts. Threads: one.
  void refresh_counters() noexcept;

  bool is_there() const noexcept { return provider_ != nullptr; }
  // What peers are reached through; nullptr: there is none.
  const VerbsPort* port() const noexcept { return is_there() ? &device_->port() : nullptr; }
  // The same peers by datagrams (VerbsProvider::send_datagram); what they send comes as messages.
  // nullptr: there are none.
  VerbsProvider* datagrams() noexcept { return has_datagrams_ ? provider_.get() : nullptr; }
  // The memory of an export; empty: there is none of that name.
  std::span<std::byte> exported(std::string_view name) const noexcept;

  // As a source of the loop: looks whether a drain is complete.
  uint32_t poll(uint32_t budget) noexcept override;

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
