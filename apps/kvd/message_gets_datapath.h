// Gets by message: "kvd.get", for processes, shards and hosts that need no socket
// (docs/messages.md).
//
//     question   a byte: the number of the answer; 4 bytes, which it repeats; the key
//     answer     the 4 bytes; a byte: Answer; a short value behind it, a longer one lent
//
// A value is lent as it lies in the cache, pinned until it comes back. What is lent is bounded by
// an eighth of the cache and kLoansMax; questions beyond that wait, and kWaitingMax of them at
// most. Threads: the shard's.
#pragma once

#include <cstdint>

#include "apps/kvd/session_datapath.h"
#include "transport/event_loop.h"
#include "transport/messenger.h"

namespace bedplate::kvd {

enum class Answer : uint8_t {
  kFound = 0,
  kNone = 1,
  kUnreachable = 2,  // too long for a message, and this peer may not read the cache
};

class MessageGets final : public PollSource {
 public:
  static constexpr uint32_t kCopyMax = 1024;  // longer values are lent
  static constexpr uint32_t kLoansMax = 64;
  static constexpr uint32_t kWaitingMax = 64;
  static constexpr uint32_t kHeadBytes = 5;

  // Answers questions of number `get` to `messenger`. All outlive this; `loop` tells the time.
  void create(Messenger& messenger, AmId get, const SessionEnvironment& environment,
              const EventLoop& loop) noexcept;

  // Answers what has waited.
  uint32_t poll(uint32_t budget) noexcept override;

  uint32_t lent_count() const noexcept { return lent_count_; }

 private:
  struct Question {
    Endpoint* from = nullptr;
    AmId reply = 0;
    uint8_t key_bytes = 0;
    char tag[4] = {};
    char key[kKeyBytesMax] = {};
  };
  struct Lent : Completion {
    MessageGets* self = nullptr;
    Item* item = nullptr;  // nullptr: this place is free
  };

  void ask(const Message& message) noexcept;
  bool answer(const Question& question) noexcept;
  bool answer_with(const Question& question, Item& item) noexcept;
  bool send(const Question& question, Answer answer, std::string_view value) noexcept;
  SendStatus lend(const Question& question, Item& item) noexcept;
  static void returned(Completion& lent, Outcome outcome) noexcept;

  SessionEnvironment environment_;
  const EventLoop* loop_ = nullptr;
  uint64_t lent_bytes_ = 0;
  uint32_t lent_count_ = 0;
  Lent lent_[kLoansMax];
  uint32_t first_ = 0;  // of those that wait, in a ring
  uint32_t waiting_ = 0;
  Question questions_[kWaitingMax];
};

}  // namespace bedplate::kvd
