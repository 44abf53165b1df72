// A provider: one kind of path to peers. The messenger asks its providers in order; each makes an
// endpoint or says why not.
//
// A new kind of path implements Provider and Endpoint; nothing else changes. docs/transport.md,
// "Rules for providers", has the rules for all of them. Services use Messenger and Endpoint.
#pragma once

#include <cstdint>

#include "platform/result.h"
#include "transport/messages/endpoint.h"

namespace bedplate {

class ThreadOwner;

// The peer to reach. The caller sets its number in a group, or its name. A provider reads the field
// that it needs.
struct PeerAddress {
  uint32_t member = UINT32_MAX;  // in a group; UINT32_MAX: known by its name
  // The name of a shard of this process, of a process that joined, or of an appliance on the
  // network, as in the list of peers.
  const char* name = nullptr;
};

// Providers deliver messages to it. The messenger owns it, and it outlives the provider's polls.
class Dispatcher {
 public:
  void set_handler(AmId id, AmHandler handler) noexcept {
    handler.asker = current_heap_owner();
    handlers_[id] = handler;
  }
  // This function takes messages that have no handler here. A layer between a provider and another
  // dispatcher sets it. It returns as deliver() does.
  struct Onward {
    bool (*function)(void* context, const Message& message) noexcept = nullptr;
    void* context = nullptr;
  };
  void set_onward(const Onward& onward) noexcept { onward_ = onward; }
  // Runs the handler; the loan is the handler's from then on. Returns false if there is no handler:
  // then the provider counts the message, and gives the loan back.
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

// Threads: the shard's, unless a provider says otherwise.
class Provider {
 public:
  virtual ~Provider() = default;

  virtual const char* name() const noexcept = 0;  // static; for logs and Messenger::connect

  // An endpoint of `peer`, always the same for the same peer. Ownership: the provider's. Errors:
  // why this provider cannot reach the peer.
  virtual Result<Endpoint*> connect(const PeerAddress& peer) = 0;

  // Delivers arrived messages and ends completed operations, at most about `budget` in all; returns
  // how many.
  virtual uint32_t poll(uint32_t budget) noexcept = 0;

  // Gives a loan back to its lender. Makes no callbacks.
  virtual void release(const Loan& loan) noexcept = 0;

  // The shard is about to sleep, or is awake again. A peer that sends in between must wake it.
  // After announce_sleep() the shard polls once more.
  virtual void announce_sleep() noexcept = 0;
  virtual void announce_awake() noexcept = 0;
  // Sleeps until a peer sends, or `timeout_ns` have passed; may return early. Requires:
  // announce_sleep(); can_sleep().
  virtual void sleep(uint64_t timeout_ns) noexcept = 0;
  // Whether sleep() may be called, and ends when a message arrives.
  virtual bool can_sleep() const noexcept = 0;

  // Called when its messenger belongs to an event loop: only the thread of `loop` uses it from now
  // on, and it may check that. `loop` outlives its use.
  virtual void follow(const ThreadOwner& /*loop*/) noexcept {}
};

}  // namespace bedplate
