// A provider that many threads may use. It stands between a messenger and another provider, wraps
// that provider's endpoints, and takes one lock around each send, operation, release, connect and
// poll. announce_sleep(), announce_awake() and sleep() take no lock: the polling thread calls them
// while others send.
//
// So providers, their endpoints and the layers below need not know of threads. A messenger that one
// thread uses pays nothing for locks.
//
// The lock is released around every callback: handlers, completions, events. So a program may take
// its own lock in a handler, and hold the same lock while it sends. (UCX in UCS_THREAD_MODE_MULTI
// runs callbacks under the lock of its worker, and such a program may deadlock. libfabric has no
// callbacks.) A provider lets its callbacks send and release, so other threads may call it while a
// callback runs.
//
// Invariants: 1. An endpoint is wrapped once. 2. A completion is in the list of free ones, or
// stands for one of the caller's. (is_valid)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "platform/free_list.h"
#include "transport/messages/peer_event.h"
#include "transport/messages/provider.h"
#include "transport/messages/turn_lock.h"

namespace bedplate {

struct LockingLimits {
  uint32_t endpoint_count = 0;  // the most peers; a further one fails an assertion
  // The most loans and operations with a completion that are out; beyond it they return kAgain.
  uint32_t completion_count = 0;
};

// Threads: any, for release() and the endpoints' functions; one at a time for all others.
class LockingProvider final : public Provider {
 public:
  // `wrapped` delivers to dispatcher(). It must carry out sends without polls, since the shard may
  // be asleep. `wrapped` and `outer` (the messenger's) outlive this. Allocates.
  LockingProvider(Provider& wrapped, const Dispatcher& outer, const LockingLimits& limits);
  LockingProvider(const LockingProvider&) = delete;
  LockingProvider& operator=(const LockingProvider&) = delete;
  ~LockingProvider() override;

  const Dispatcher& dispatcher() const noexcept { return dispatcher_; }
  // Returns the handler for the wrapped provider; it forwards to `outer`, without the lock. Called
  // at most once.
  PeerEventHandler events_to(const PeerEventHandler& outer) noexcept;

  const char* name() const noexcept override { return wrapped_.name(); }
  Result<Endpoint*> connect(const PeerAddress& peer) override;
  uint32_t poll(uint32_t budget) noexcept override;
  void release(const Loan& loan) noexcept override;
  void announce_sleep() noexcept override { wrapped_.announce_sleep(); }
  void announce_awake() noexcept override { wrapped_.announce_awake(); }
  void sleep(uint64_t timeout_ns) noexcept override { wrapped_.sleep(timeout_ns); }
  bool can_sleep() const noexcept override { return wrapped_.can_sleep(); }

  // The wrapped endpoint behind `endpoint`, which is one of this provider's.
  static Endpoint& wrapped(Endpoint& endpoint) noexcept;

  // Requires: the caller has the lock, or nobody uses the provider. Cost: a walk through all
  // endpoints and completions.
  bool is_valid() const noexcept;

 private:
  class WrappedEndpoint;
  // The wrapped provider gets this instead of the caller's completion.
  struct WrappedCompletion : Completion {
    LockingProvider* owner = nullptr;
    Completion* outer = nullptr;  // nullptr: it is free
    WrappedCompletion* next_free = nullptr;
  };
  class Unlocked;

  // The index in endpoints_ at which `endpoint` is wrapped, or would be.
  size_t index_of(const Endpoint& endpoint) const noexcept;
  // The callers of these four hold the lock.
  Endpoint& wrap(Endpoint& endpoint) noexcept;
  bool pass_on(const Message& message) noexcept;
  void finish(WrappedCompletion& completion, Outcome outcome) noexcept;
  void free(WrappedCompletion& completion) noexcept;
  // Makes `start` begin the operation with a completion that stands for `done`. Returns the result
  // of `start`; kAgain if no completion is free.
  template <typename Start>
  SendStatus with_completion(Completion* done, Start&& start) noexcept;

  Provider& wrapped_;
  const Dispatcher& outer_;
  Dispatcher dispatcher_;
  PeerEventHandler outer_events_;
  TurnLock lock_;
  bool is_polling_ = false;  // the polling thread has the lock, except during callbacks
  // A hash table by the wrapped endpoint's address, with linear probing.
  std::vector<std::optional<WrappedEndpoint>> endpoints_;
  std::unique_ptr<WrappedCompletion[]> completions_;
  uint32_t completion_count_ = 0;
  FreeList<&WrappedCompletion::next_free> free_;
};

}  // namespace bedplate
