// The messenger: one shard sends and receives messages with it.
//
// It knows the handler of each active message. It asks its providers, in the order in which they
// were added, for an endpoint of a peer, and polls them all. Either it is a poll source of an event
// loop, or the program calls poll() while there is work, and wait() when there is none.
//
// Peers that know a message by its name ask for its number (message_names.h).
//
// Invariants, which is_valid() looks at, around each change: 1. Callers that wait for space are in
// one list, each with its peer, and room_count_ is their number. 2. Each provider has one entry
// among the polled ones, and each poll looks at one of them at least. 3. Each pending query has a
// peer, and no two have the same token. 4. No peer has more than its share of the waiting answers.
//
// Threads: the shard's; before the shard runs, the thread that sets the messenger up. Handlers,
// completions and the other callbacks run within poll() and wait(), on the shard's thread. After
// set-up only connect() allocates, and the poll of a provider that says so (docs/transport.md).
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

  // The messenger and its providers belong to an event loop from now on (EventLoop::thread). Its
  // thread alone uses them while it runs: connect() checks it, and debug builds check each call.
  // Called before add_provider(). `loop` outlives the use of the messenger.
  void follow(const ThreadOwner& loop) noexcept;

  // The dispatcher that providers deliver to.
  Dispatcher& dispatcher() noexcept { return dispatcher_; }
  // Sets the function that runs for messages of `id`, in place of the previous one. Messages
  // without a handler are counted and dropped, and their loans given back. Requires: `id` is
  // neither kAskNumberAm nor kTellNumberAm: the messenger handles those.
  void set_handler(AmId id, AmHandler handler) noexcept { dispatcher_.set_handler(id, handler); }

  // `provider` outlives the messenger. Called before messages are sent.
  void add_provider(Provider& provider);

  // An endpoint of `peer`, from the first provider that has one; always the same for the same peer.
  // It does not wait for the peer. It may allocate: once for each peer. Ownership: the provider's.
  // If `why` is not nullptr, a success stores there the chosen provider, and the reasons of those
  // before it: "shm, since self: this is shard main". Errors: each provider's reason.
  Result<Endpoint*> connect(const PeerAddress& peer, std::string* why = nullptr);

  // ---- Numbers by name ----

  // Makes the messenger answer peers that ask for numbers. `names` outlives this. Called before
  // messages are sent. Without this call peers are told that there are no names.
  void answer_names(const MessageNames& names) noexcept { names_ = &names; }
  // Asks the peer for the number of its message `name`; the answer goes to `query`. Returns as
  // am_send does; kTooLong also if `name` is longer than kMessageNameMax. `name` is copied. Only
  // after kDone can an answer follow. None follows if the peer dies, or drops the question because
  // too many answers wait for space already (kAnswersPerPeerMax): then the caller must take the
  // query back.
  // Requires: `query` is not pending.
  SendStatus ask_number(Endpoint& peer, std::string_view name, NumberQuery& query) noexcept;
  // Cancels the query; does nothing if it was answered.
  void take_back(NumberQuery& query) noexcept;

  // ---- Space after kAgain ----

  // Makes a later poll call `room` once, when the queue of `to` takes messages again or its peer is
  // gone: then the caller tries again. If the caller still finds no space (a loan also needs memory
  // beside the queue), it calls this again, also from within the callback. Each poll looks at all
  // waiting callers in turn. The peer rings no bell for this. So a shard that would sleep wakes up
  // and looks while anybody waits (room_wait.h). Requires: `room` is not waiting already.
  void notify_room(Endpoint& to, RoomCall& room) noexcept;
  // Cancels the callback; does nothing if `room` is not waiting.
  void take_back(RoomCall& room) noexcept;

  // Runs handlers and completions for everything that has arrived, at most about `budget` for each
  // provider. Returns how many. A provider that brought nothing for kQuietPolls polls, or up to
  // twice as many, becomes quiet, but at least one provider is polled always. Quiet providers take
  // turns: one of them is polled in each kPollsPerQuietOne polls, or in each poll while nothing
  // arrives at all. So many idle providers cost less than a busy one. Requires, as wait() does: not
  // called from within a handler or another callback of a poll.
  uint32_t poll(uint32_t budget) noexcept override;
  static constexpr uint32_t kQuietPolls = 64;
  static constexpr uint32_t kPollsPerQuietOne = 8;

  // As a poll source: announces to all providers. Each provider has its own means to wake the loop.
  void announce_sleep() noexcept override;
  void announce_awake() noexcept override;
  // Makes the next poll look at all providers, also the quiet ones. This is the second half of
  // announce_sleep(), for a source that announces to the providers itself.
  void prepare_last_look() noexcept;
  uint64_t sleep_max_ns() const noexcept override {
    return answer_count_ != 0 || rooms_ != nullptr ? room_wait_.sleep_max_ns() : kUnlimitedNs;
  }

  // Polls once. If nothing came, it sleeps until something may have arrived, at most `timeout_ns`.
  // Requires: exactly one provider can sleep (Provider::can_sleep), since messages from others do
  // not end the sleep; no event loop polls this messenger.
  void wait(uint64_t timeout_ns) noexcept;

  // Gives a loan back to its sender, whether the sender lives or not. The receiver must not touch
  // its memory any more. Does nothing if there is no loan. Requires: it was not given back before.
  // Threads: any, if the provider is made for several (Endpoint).
  void release(const Loan& loan) noexcept {
    if (loan.is_there()) loan.provider->release(loan);
  }

  // Whether the invariants hold. Cost: a walk through all waiting callers and queries.
  bool is_valid() const noexcept;

 private:
  static constexpr uint32_t kLastLookBudget = 256;
  // The limits on answers that wait for space, for all peers together and for each. A question that
  // exceeds them is dropped, and is not counted.
  static constexpr uint32_t kAnswerCountMax = 64;
  static constexpr uint32_t kAnswersPerPeerMax = 16;

  struct Polled {
    Provider* provider = nullptr;
    bool has_found = true;  // something, since the providers were last sorted
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
  static SendStatus send(const Answer& answer) noexcept;
  uint32_t answer_count_to(const Endpoint& peer) const noexcept;
  uint32_t send_answers() noexcept;
  uint32_t call_rooms() noexcept;
  void append(Endpoint& to, RoomCall& room) noexcept;

  ThreadOwner owner_;                  // held by the polling thread, in debug builds
  const ThreadOwner* loop_ = nullptr;  // nullptr: no loop has it
  Dispatcher dispatcher_;
  std::vector<Provider*> providers_;
  std::vector<Polled> polled_;  // first those that each poll looks at, then the quiet ones
  uint32_t active_count_ = 0;
  uint32_t turn_ = 0;  // the index of the quiet provider that was polled last
  uint32_t look_interval_ = kPollsPerQuietOne;
  uint32_t polls_to_look_ = kPollsPerQuietOne;
  bool is_polling_ = false;  // beside polls_to_look_, in a line that each poll writes anyway
  uint32_t polls_since_sorted_ = 0;
  const MessageNames* names_ = nullptr;
  NumberQuery* queries_ = nullptr;
  uint32_t last_token_ = 0;
  RoomCall* rooms_ = nullptr;  // waiting callers, in order
  RoomCall* last_room_ = nullptr;
  uint32_t room_count_ = 0;
  uint64_t room_round_ = 0;
  RoomWait room_wait_;  // for rooms_ and unsent answers
  uint32_t answer_count_ = 0;
  Answer answers_[kAnswerCountMax];  // waiting for space
};

}  // namespace bedplate
