// The messenger: one shard sends and receives messages with it.
//
// It knows which function runs for which active message, asks its providers, in the order in which
// they were added, for a way to a peer, and polls them all. It is a poll source of an event loop,
// or is polled by hand: poll() while there is work, wait() when there is none.
//
// Peers that know a message by its name ask for its number (message_names.h).
//
// Invariants, which is_valid() looks at, around what changes them: 1. those that wait for room are
// in one list, each with its peer, and room_count_ is their number. 2. Each provider is polled in
// one place, and at least one of them always. 3. Numbers that are asked for have a peer each, and
// no two the same token.
//
// All functions: the shard's thread; before it runs, the one that sets it up. Handlers, completions
// and the other callbacks run within poll() and wait(), on that thread. Nothing is allocated after
// set-up but by connect(), and what a provider's poll says of itself (docs/transport.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "platform/thread_owner.h"
#include "transport/loop/event_loop.h"
#include "transport/messages/message_names.h"
#include "transport/messages/provider.h"
#include "transport/messages/room_wait.h"

namespace bedplate {

class Messenger final : public PollSource {
 public:
  Messenger() noexcept;
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // The dispatcher that providers deliver to.
  Dispatcher& dispatcher() noexcept { return dispatcher_; }
  // Which function runs for messages of `id`; it takes the place of the one before. Without one
  // they are counted and dropped. kAskNumberAm and kTellNumberAm are the messenger's own.
  void set_handler(AmId id, AmHandler handler) noexcept { dispatcher_.set_handler(id, handler); }

  // `provider` outlives the messenger. Before messages are sent.
  void add_provider(Provider& provider);

  // A way to `peer`, by the first provider that has one; the same for the same peer. It does not
  // wait for the peer. It may allocate: once for each peer. Ownership: the provider's.
  // `*why`, unless it is nullptr: which way was taken, and what the providers before it said:
  // "shm, since self: this is shard main". Errors: for each provider why it was not taken.
  Result<Endpoint*> connect(const PeerAddress& peer, std::string* why = nullptr);

  // ---- Numbers by name ----

  // Answers peers that ask for numbers. `names` outlive this. Before messages are sent; without it
  // they are told that there are none.
  void answer_names(const MessageNames& names) noexcept { names_ = &names; }
  // Asks the peer for the number of its message `name`; `query` says what is called then.
  // Returns what am_send does; only with kDone there will be an answer. Like every message it can
  // be lost with the peer: take it back then. Requires: `query` is not under way. `name` is copied;
  // kTooLong: over kMessageNameMax.
  SendStatus ask_number(Endpoint& peer, std::string_view name, NumberQuery& query) noexcept;
  // The query is not answered any more; nothing happens if it was.
  void take_back(NumberQuery& query) noexcept;

  // ---- Room after kAgain ----

  // Has `room` called once, from a later poll, when the queue of `to` takes messages again or its
  // peer is gone: the caller tries again then. If it finds no room all the same (a loan's place,
  // memory of its own), it asks again, also from within the call.
  // All that wait are looked at in turn, once a poll. The peer rings nobody for this: a shard that
  // would sleep looks now and then while anybody waits (room_wait.h).
  // Requires: `room` does not wait already.
  void notify_room(Endpoint& to, RoomCall& room) noexcept;
  // It is not called any more; nothing happens if it does not wait.
  void take_back(RoomCall& room) noexcept;

  // Runs handlers and completions for what has arrived, at most about `budget` of each provider.
  // Returns how many.
  // Providers from which nothing came for kQuietPolls, or up to twice as many, are looked at in
  // turn, but for one, which always is: one in each kPollsPerQuietOne polls, or in each while
  // nothing comes at all. Many that are idle cost less than one that is not.
  uint32_t poll(uint32_t budget) noexcept override;
  static constexpr uint32_t kQuietPolls = 64;
  static constexpr uint32_t kPollsPerQuietOne = 8;

  // As a poll source: announces to all providers. Each of them has its own means to wake the loop.
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;
  // The second half of announce_sleep(), for a source that announces to the providers itself: the
  // next poll looks at all of them, however quiet they were.
  void prepare_last_look() noexcept;
  uint64_t sleep_max_ns() const noexcept override {
    return answer_count_ != 0 || rooms_ != nullptr ? room_wait_.sleep_max_ns() : kUnlimitedNs;
  }

  // Polls once, and if nothing came sleeps until something may have arrived, at most `timeout_ns`.
  // Requires: just one provider that can be waited for (Provider::can_sleep); messages from others
  // wake nobody. Not for a messenger that is polled by an event loop.
  void wait(uint64_t timeout_ns) noexcept;

  // Gives a loan back to its sender, alive or dead; its memory is not looked at any more. Nothing
  // happens if there is none. Requires: it was not given back before.
  // Threads: also others', if the provider was made for several (Endpoint).
  void release(const Loan& loan) noexcept {
    if (loan.is_there()) loan.provider->release(loan);
  }

  // Whether the invariants hold. Cost: a walk through all that wait.
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kLastLookBudget = 256;
  // Answers that their endpoints had no room for. A peer that asks on without reading has its
  // further questions dropped.
  static constexpr uint32_t kAnswerCountMax = 64;

  struct Polled {
    Provider* provider = nullptr;
    bool has_found = true;  // since they were last sorted
  };
  struct Answer {
    Endpoint* to = nullptr;
    uint32_t token = 0;
    int32_t number = -1;  // -1: none
  };

  uint32_t look_around(uint32_t budget) noexcept;
  uint32_t poll_a_quiet_one(uint32_t budget) noexcept;
  void find_quiet_ones() noexcept;
  void hear_question(const Message& message) noexcept;
  void hear_answer(const Message& message) noexcept;
  uint32_t send_answers() noexcept;
  uint32_t call_rooms() noexcept;
  void append(Endpoint& to, RoomCall& room) noexcept;

  ThreadOwner owner_;  // held by the thread that polls
  Dispatcher dispatcher_;
  std::vector<Provider*> providers_;
  std::vector<Polled> polled_;  // the same: those that each poll looks at, then the quiet ones
  uint32_t active_count_ = 0;
  uint32_t turn_ = 0;  // which of the quiet ones was looked at last
  uint32_t look_interval_ = kPollsPerQuietOne;
  uint32_t polls_to_look_ = kPollsPerQuietOne;
  uint32_t polls_since_sorted_ = 0;
  const MessageNames* names_ = nullptr;
  NumberQuery* queries_ = nullptr;
  uint32_t last_token_ = 0;
  RoomCall* rooms_ = nullptr;  // that wait, in their order
  RoomCall* last_room_ = nullptr;
  uint32_t room_count_ = 0;
  uint64_t room_round_ = 0;
  RoomWait room_wait_;  // of rooms and answers
  uint32_t answer_count_ = 0;
  Answer answers_[kAnswerCountMax];
};

}  // namespace bedplate
