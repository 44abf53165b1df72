// A provider: one kind of way to peers. The messenger asks its providers in order; each makes an
// endpoint or says why not.
//
// A kind of way is added by implementing this and Endpoint; nothing else changes. The rules for all
// of them: docs/transport.md, "Rules for providers". Services use Messenger and Endpoint.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "transport/messages/endpoint.h"

namespace bedplate {

// The peer that is to be reached, as far as it is known: its place in a group, or its name. A
// provider looks at what it needs.
struct PeerAddress {
  uint32_t member = UINT32_MAX;  // in a group; UINT32_MAX: it is known by its name
  // The name of a shard of this process, of a process that has joined, or of an appliance on the
  // network, as in the list of peers.
  const char* name = nullptr;
};

// Providers hand messages to it. It is the messenger's, and outlives the provider's polls.
class Dispatcher {
 public:
  void set_handler(AmId id, AmHandler handler) noexcept {
    handler.asker = current_heap_owner();
    handlers_[id] = handler;
  }
  // Takes messages that have no handler here: for a layer between a provider and another
  // dispatcher. It returns what deliver() does.
  struct Onward {
    bool (*function)(void* context, const Message& message) noexcept = nullptr;
    void* context = nullptr;
  };
  void set_onward(const Onward& onward) noexcept { onward_ = onward; }
  // Runs the handler, which has the loan from then on. Returns false when there is none: then the
  // provider counts the message, and gives the loan back.
  bool deliver(const Message& message) const noexcept {
    const AmHandler& handler = handlers_[message.id];
    if (handler.function == nullptr) {
      return onward_.function != nullptr && onward_.function(onward_.context, message);
    }
    follow_heap_owner(handler.asker);
    handler.function(handler.context, message);
    return true;
  }

 private:
  Onward onward_;
  AmHandler handlers_[kAmCount] = {};
};

// Threads: the shard's, but for what a provider says of itself.
class Provider {
 public:
  virtual ~Provider() = default;

  virtual const char* name() const noexcept = 0;  // static: as in logs and Messenger::connect

  // A way to `peer`, always the same for the same peer. Ownership: the provider's.
  // Errors: why this kind of way does not lead there.
  virtual Result<Endpoint*> connect(const PeerAddress& peer) = 0;

  // Delivers arrived messages and ends operations that are done, at most about `budget` of both;
  // returns how many.
  virtual uint32_t poll(uint32_t budget) noexcept = 0;

  // Gives a loan back to its lender. Calls nothing back.
  virtual void release(const Loan& loan) noexcept = 0;

  // About to sleep, and awake again: a peer that sends in between must wake this shard. After
  // announce_sleep the shard polls once more.
  virtual void announce_sleep() noexcept = 0;
  virtual void announce_awake() noexcept = 0;
  // Sleeps until somebody sends, or `timeout_ns` passed; may return early.
  // Requires: announce_sleep(); can_sleep().
  virtual void sleep(uint64_t timeout_ns) noexcept = 0;
  // Whether sleep() can be called, and wakes when something comes.
  virtual bool can_sleep() const noexcept = 0;
};

}  // namespace bedplate
