// MessageAnswers: answers questions that arrive as messages, in order, with copied or lent values.
//
// A service derives from it and implements answer() and returned(). If there is no space for an
// answer, because the peer's queue is full or too much is lent, the question waits. Later questions
// of the same peer wait behind it. The loop's next rounds call answer() again. No peer waits for
// another peer's questions. Lent values are bounded in number and bytes, so peers that keep their
// loans cannot hold all of the service's memory. Waiting questions are bounded, too. Each peer has
// a share of both, so a peer that neither reads nor returns anything leaves the rest to the others.
//
// Invariants, which is_valid() looks at, around ask(), poll(), lend() and each return: 1.
// lent_bytes_ and lent_count_ are the sums over the used slots. 2. No peer has more than its share
// of loans or of waiting questions. 3. A waiting question has a sender and fits into its slot.
// Threads: the shard's.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "transport/loop/event_loop.h"
#include "transport/messages/messenger.h"

namespace bedplate {

struct MessageAnswersOptions {
  Messenger* messenger = nullptr;  // the shard's
  AmId question = 0;               // the message number of questions
  // The limit on lent bytes. One peer may have half of it. A loan may exceed a limit if it is the
  // only one that counts towards it.
  uint64_t lent_bytes_max = 0;
  Counter* dropped = nullptr;  // malformed, too long to wait, or no slot to wait in
};

class MessageAnswers : public PollSource {
 public:
  static constexpr uint32_t kLoansMax = 64;
  static constexpr uint32_t kLoansPerPeerMax = 32;
  static constexpr uint32_t kWaitingMax = 64;
  static constexpr uint32_t kWaitingPerPeerMax = 16;
  // A longer question is dropped if it must wait.
  static constexpr uint32_t kQuestionBytesMax = 256;

  // Starts to answer. The service adds this to the loop. Requires: called once, before messages are
  // sent; everything `options` names outlives this.
  void create(const MessageAnswersOptions& options) noexcept;

  // Answers at most `budget` waiting questions; returns how many it answered or dropped.
  uint32_t poll(uint32_t budget) noexcept override;
  // Bounds the sleep while questions wait: a peer that empties its full queue rings no bell.
  uint64_t sleep_max_ns() const noexcept override {
    return waiting_ > 0 ? room_wait_.sleep_max_ns() : kUnlimitedNs;
  }

  uint32_t lent_count() const noexcept { return lent_count_; }
  // Whether the invariants hold. Cost: for each slot, a look at each slot.
  bool is_valid() const noexcept;

 protected:
  enum class Verdict : uint8_t {
    kDone,     // answered, or the sender is gone
    kAgain,    // no space for the answer now: the question waits
    kDropped,  // malformed: counted
  };
  // The payload is valid until this returns. `question` has no loan: MessageAnswers gave it back
  // unread.
  virtual Verdict answer(const Message& question) noexcept = 0;
  // The `loan` of an earlier lend() came back, or its peer is gone and can no longer read it. The
  // messenger's polls call this.
  virtual void returned(void* loan) noexcept = 0;

  // Calls Endpoint::am_send_loan and returns its status; returns kAgain if the bounds forbid the
  // loan. returned(loan) is called once, and only after kPending. The caller must not change or
  // free `block` until then.
  SendStatus lend(Endpoint& to, AmId id, std::span<const std::byte> header,
                  std::span<std::byte> block, void* loan) noexcept;

 private:
  struct Question {
    Endpoint* from = nullptr;
    uint32_t bytes = 0;
    std::byte payload[kQuestionBytesMax];
  };
  struct Lent : Completion {
    MessageAnswers* self = nullptr;  // nullptr: this slot is free
    const Endpoint* to = nullptr;
    void* loan = nullptr;
    uint64_t bytes = 0;
  };

  void ask(const Message& message) noexcept;
  bool is_answered(const Message& question) noexcept;
  static uint32_t count_of(const Endpoint& peer, std::span<const Question> questions) noexcept;

  MessageAnswersOptions options_;
  uint64_t lent_bytes_ = 0;
  uint32_t lent_count_ = 0;
  Lent lent_[kLoansMax];
  uint32_t waiting_ = 0;
  Question questions_[kWaitingMax];  // the first `waiting_` are used, in order of arrival
  RoomWait room_wait_;
};

}  // namespace bedplate
