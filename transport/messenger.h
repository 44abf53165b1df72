// The messenger: what one shard sends and receives messages with.
//
// It knows which function runs for which active message, asks its providers, in the order in which
// they were added, for a way to a peer, and polls them all. It is a poll source of an event loop,
// or is polled by hand: poll() while there is work, wait() when there is none.
#pragma once

#include <cstdint>

#include "transport/event_loop.h"
#include "transport/provider.h"

namespace bedplate {

class Messenger final : public PollSource {
 public:
  static constexpr uint32_t kProviderCountMax = 8;

  Messenger() noexcept = default;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // What providers deliver to.
  Dispatcher& dispatcher() noexcept { return dispatcher_; }
  // Which function runs for messages of `id`. Without one they are counted and dropped.
  void set_handler(AmId id, AmHandler handler) noexcept { dispatcher_.set_handler(id, handler); }

  // `provider` outlives the messenger. Before messages are sent.
  void add_provider(Provider& provider) noexcept;

  // A way to `peer`, by the first provider that has one; the same for the same peer. It may
  // allocate: once for each peer. Ownership: the provider's. Threads: the shard's.
  // Errors: for each provider why it was not taken.
  Result<Endpoint*> connect(const PeerAddress& peer);

  // Runs handlers and completions for what has arrived. Threads: the shard's.
  uint32_t poll(uint32_t budget) noexcept override;

  // As a poll source: to all providers. What then wakes the loop is each provider's business.
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;

  // Sleeps until something may have arrived, at most `timeout_ns`. Requires: one provider that can
  // be waited for (Provider::can_sleep). Threads: the shard's.
  void wait(uint64_t timeout_ns) noexcept;

  // Gives a loan back to its sender. Threads: the shard's, unless the provider was made for many.
  void release(const Loan& loan) noexcept { loan.provider->release(loan); }

 private:
  static constexpr uint32_t kLastLookBudget = 256;

  Dispatcher dispatcher_;
  Provider* providers_[kProviderCountMax] = {};
  uint32_t provider_count_ = 0;
};

}  // namespace bedplate
