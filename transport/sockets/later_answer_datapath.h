// LaterAnswer: the answer to a request that waits for a file, another shard, a message or a timer
// (StreamSession::later).
//
//     work():       take(line); start the operation, with later() as its context
//     completion:   answer.say(text); answer.finish(now_ns)
//
// Threads: the session's.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "platform/assert.h"
#include "platform/histogram.h"

namespace bedplate {

class StreamSession;

class LaterAnswer {
 public:
  static constexpr uint32_t kTextBytes = 2 * 1024;

  LaterAnswer() noexcept = default;
  LaterAnswer(const LaterAnswer&) = delete;
  LaterAnswer& operator=(const LaterAnswer&) = delete;

  // Whether the peer is still there. Otherwise nobody reads the answer, but it is finished as well.
  bool is_wanted() const noexcept;

  // Appends a copy of `text`. Requires: at most kTextBytes in all.
  void say(std::string_view text) noexcept {
    BP_ASSERT(is_open() && text.size() <= kTextBytes - text_bytes_);
    std::memcpy(text_ + text_bytes_, text.data(), text.size());
    text_bytes_ += static_cast<uint32_t>(text.size());
  }
  void say_number(uint64_t number) noexcept;
  // Appends `text` without a copy, as StreamSession::lend does. Requires: once.
  void lend(std::string_view text, void* loan) noexcept {
    BP_ASSERT(is_open() && lent_.data() == nullptr && text.data() != nullptr);
    lent_ = text;
    loan_ = loan;
    lent_at_ = text_bytes_;
  }
  // As StreamSession::answered; the time ends when the session puts the answer into a send.
  void answered(Histogram& time_ns, uint8_t kind = 0) noexcept {
    BP_ASSERT(is_open());
    time_ns_ = &time_ns;
    kind_ = kind;
  }
  // The answer is complete. It belongs to the session again. `now_ns`: the loop's time.
  void finish(uint64_t now_ns) noexcept;

 private:
  friend class StreamSession;
  enum class State : uint8_t { kSpare, kHeld, kWaits, kFinished };  // kHeld: by a step

  bool is_open() const noexcept { return state_ == State::kHeld || state_ == State::kWaits; }
  bool is_empty() const noexcept { return text_bytes_ == 0 && lent_.data() == nullptr; }
  void begin(State state, uint64_t received_ns) noexcept {
    BP_ASSERT(state_ == State::kSpare);
    state_ = state;
    received_ns_ = received_ns;
    text_bytes_ = lent_at_ = 0;
    lent_ = {};
    time_ns_ = nullptr;
  }

  StreamSession* session_ = nullptr;
  LaterAnswer* next_ = nullptr;
  State state_ = State::kSpare;
  uint8_t kind_ = 0;
  uint32_t text_bytes_ = 0;
  uint32_t lent_at_ = 0;  // the bytes of text before the loan
  std::string_view lent_;
  void* loan_ = nullptr;
  Histogram* time_ns_ = nullptr;
  uint64_t received_ns_ = 0;  // of its request
  char text_[kTextBytes];
};

}  // namespace bedplate
