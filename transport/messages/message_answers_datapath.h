// MessageAnswers: questions that come by message, answered in their order, by values that are
// copied or lent.
//
// A service derives from it and implements answer(). A question that finds no room for its answer,
// because the peer's queue is full or too much is lent, waits with those of the same peer behind
// it: answer() is asked again when the loop comes by. No peer waits for another one's questions.
// Loans are bounded in number and bytes, so that peers which keep their loans cannot hold all
// of the service's memory; so is what waits. One peer has no more than its share of each, so that
// one which reads nothing and returns nothing leaves the rest to the others.
//
// Invariants, which is_valid() looks at, around ask(), poll(), lend() and each return: 1.
// lent_bytes_ and lent_count_ are those of the places that are taken. 2. No peer has more than its
// share of loans or of what waits. 3. A question that waits has a sender and fits into its place.
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
  AmId question = 0;               // the number that questions come with
  uint64_t lent_bytes_max = 0;     // at a time, to one peer half of it; one loan may be larger
  Counter* dropped = nullptr;      // makes no sense, or finds no place to wait
};

class MessageAnswers : public PollSource {
 public:
  static constexpr uint32_t kLoansMax = 64;
  static constexpr uint32_t kLoansPerPeerMax = 32;
  static constexpr uint32_t kWaitingMax = 64;
  static constexpr uint32_t kWaitingPerPeerMax = 16;
  static constexpr uint32_t kQuestionBytesMax = 256;  // of one that waits; a longer one is dropped

  // Answers from now on. The service adds this to the loop. Requires: called once, before messages
  // are sent; what `options` names outlives this.
  void create(const MessageAnswersOptions& options) noexcept;

  // Answers questions that have waited.
  uint32_t poll(uint32_t budget) noexcept override;
  // No peer rings when it has emptied its full queue.
  uint64_t sleep_max_ns() const noexcept override {
    return waiting_ > 0 ? room_wait_.sleep_max_ns() : kUnlimitedNs;
  }

  uint32_t lent_count() const noexcept { return lent_count_; }
  // Whether the invariants hold. Cost: a look at each place, for each.
  bool is_valid() const noexcept;

 protected:
  enum class Verdict : uint8_t {
    kDone,     // it is answered, or its sender is gone
    kAgain,    // there is no room for the answer now: it waits
    kDropped,  // it makes no sense: counted
  };
  // The payload is good until this returns. There is no loan: one that came with the question was
  // given back, unseen.
  virtual Verdict answer(const Message& question) noexcept = 0;
  // The `loan` of an earlier lend() has come back.
  virtual void returned(void* loan) noexcept = 0;

  // Endpoint::am_send_loan within the bounds: beyond them kAgain. returned(loan) is called for
  // kPending alone, once; until then `block` stays as it is.
  SendStatus lend(Endpoint& to, AmId id, std::span<const std::byte> header,
                  std::span<std::byte> block, void* loan) noexcept;

 private:
  struct Question {
    Endpoint* from = nullptr;
    uint32_t bytes = 0;
    std::byte payload[kQuestionBytesMax];
  };
  struct Lent : Completion {
    MessageAnswers* self = nullptr;  // nullptr: this place is free
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
  Question questions_[kWaitingMax];  // the first `waiting_`, as they came
  RoomWait room_wait_;
};

}  // namespace bedplate
