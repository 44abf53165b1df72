// A provider that many threads may use: it stands between a messenger and another provider, whose
// endpoints it wraps, and takes one lock around all that is done with them.
//
// So providers, their endpoints and the layers below know of no threads, and a messenger that one
// thread uses pays nothing for those that are used by many.
//
// The lock is let go around everything that is called back: handlers, completions, events. So a
// program may take a lock of its own in a handler, and hold the same lock while it sends. (UCX,
// asked for UCS_THREAD_MODE_MULTI, runs callbacks under the lock of its worker, and such a program
// may stand still. libfabric calls nothing back.) A provider lets its callbacks send and release,
// so it can bear other threads' calls while one of them runs.
//
// Invariants: 1. An endpoint is wrapped once. 2. A completion is in the list of the free ones, or
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
  uint32_t endpoint_count = 0;    // peers that there can be
  uint32_t completion_count = 0;  // loans and operations that can be out; beyond: kAgain
};

// Threads: any, for release() and the endpoints' functions; one at a time for all others.
class LockingProvider final : public Provider {
 public:
  // `wrapped` delivers to dispatcher(), and does its work without being polled: the shard may be
  // asleep. It and `outer` (the messenger's) outlive this. Allocates.
  LockingProvider(Provider& wrapped, const Dispatcher& outer, const LockingLimits& limits);
  LockingProvider(const LockingProvider&) = delete;
  LockingProvider& operator=(const LockingProvider&) = delete;
  ~LockingProvider() override;

  const Dispatcher& dispatcher() const noexcept { return dispatcher_; }
  // The handler to give the wrapped provider instead of `outer`. Once.
  PeerEventHandler events_to(const PeerEventHandler& outer) noexcept;

  const char* name() const noexcept override { return wrapped_.name(); }
  Result<Endpoint*> connect(const PeerAddress& peer) override;
  uint32_t poll(uint32_t budget) noexcept override;
  void release(const Loan& loan) noexcept override;
  void announce_sleep() noexcept override { wrapped_.announce_sleep(); }
  void announce_awake() noexcept override { wrapped_.announce_awake(); }
  void sleep(uint64_t timeout_ns) noexcept override { wrapped_.sleep(timeout_ns); }
  bool can_sleep() const noexcept override { return wrapped_.can_sleep(); }

  // The endpoint that `endpoint`, one of this provider's, stands for.
  static Endpoint& wrapped(Endpoint& endpoint) noexcept;

  // Requires: the lock, or that nobody uses it. Cost: a walk through all.
  bool is_valid() const noexcept;

 private:
  class WrappedEndpoint;
  // Stands for one of the caller's with the wrapped provider.
  struct WrappedCompletion : Completion {
    LockingProvider* owner = nullptr;
    Completion* outer = nullptr;  // nullptr: it is free
    WrappedCompletion* next_free = nullptr;
  };
  class Unlocked;

  // The place in endpoints_ where `endpoint` is wrapped, or would be.
  size_t place_of(const Endpoint& endpoint) const noexcept;
  // These have the lock.
  Endpoint& wrap(Endpoint& endpoint) noexcept;
  bool pass_on(const Message& message) noexcept;
  void finish(WrappedCompletion& completion, Outcome outcome) noexcept;
  void free(WrappedCompletion& completion) noexcept;
  // Has `start` begin the operation that `done` is called for. Returns the result of `start`;
  // kAgain if there is no completion to stand for `done`.
  template <typename Start>
  SendStatus with_completion(Completion* done, Start&& start) noexcept;

  Provider& wrapped_;
  const Dispatcher& outer_;
  Dispatcher dispatcher_;
  PeerEventHandler outer_events_;
  TurnLock lock_;
  bool is_polling_ = false;  // then it is the polling thread that has the lock, between callbacks
  // By the wrapped endpoint's address: its place, or the first free one behind.
  std::vector<std::optional<WrappedEndpoint>> endpoints_;
  std::unique_ptr<WrappedCompletion[]> completions_;
  uint32_t completion_count_ = 0;
  FreeList<&WrappedCompletion::next_free> free_;
};

}  // namespace bedplate
