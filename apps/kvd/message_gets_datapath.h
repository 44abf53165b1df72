// Gets by message: "kvd.get", for processes, shards and hosts that need no socket
// (docs/messages.md).
//
//     question   a byte: the answer's message number; 4 bytes, repeated in the answer; the key
//     answer     the 4 bytes; a byte: Answer; then a short value, or a longer one as a loan
//
// Each shard of kvd answers for its own keys. A question for another one's key is answered with the
// owner's number, a byte: clients ask it straight away if they compute that themselves
// (key_owner_datapath.h), so nothing crosses here.
//
// A value longer than kCopyMax is lent in place in the cache, pinned until the peer gives it back.
// If the peer cannot read the cache, the answer contains the value, if it fits.
//
// Invariants: 1. A lent item is pinned. (returned) 2. An answer fits into its buffer, and its item
// is linked: nobody writes it. (answer) 3. Only the loop's thread answers. (both)
#pragma once

#include <algorithm>

#include "alloc/keyed_cache_datapath.h"
#include "apps/kvd/session_datapath.h"
#include "transport/messages/message_answers_datapath.h"

namespace bedplate::kvd {

enum class Answer : uint8_t {
  kFound = 0,
  kNone = 1,
  kUnreachable = 2,  // too long for a message, and the peer may not read the cache
  kElsewhere = 3,    // another shard owns the key: its number follows
};

class MessageGets final : public MessageAnswers {
 public:
  static constexpr uint32_t kCopyMax = 1024;  // longer values are lent, if possible

  explicit MessageGets(const Environment& environment) noexcept : environment_(environment) {}

 private:
  static constexpr uint32_t kTagBytes = 4;
  static constexpr uint32_t kHeadBytes = kTagBytes + 1;
  static constexpr uint32_t kAnswerBytesMax = 8 * 1024;  // even if a message may be longer

  Verdict answer(const Message& question) noexcept override;
  void returned(void* item) noexcept override {
    BP_DCHECK(environment_.is_own_thread() && static_cast<CacheItem*>(item)->pins > 0);
    environment_.cache->release(*static_cast<CacheItem*>(item));
  }

  const Environment& environment_;
};

inline MessageAnswers::Verdict MessageGets::answer(const Message& question) noexcept {
  BP_DCHECK(environment_.is_own_thread() && environment_.loop != nullptr);
  const std::string_view text(reinterpret_cast<const char*>(question.payload.data()),
                              question.payload.size());
  if (text.size() <= kHeadBytes || text.size() > kHeadBytes + kKeyBytesMax) {
    return Verdict::kDropped;
  }
  const auto reply = static_cast<AmId>(text[0]);
  char answer[kAnswerBytesMax];
  text.copy(answer, kTagBytes, 1);
  const auto send = [&](Answer kind, std::string_view value) {
    BP_DCHECK(kHeadBytes + value.size() <= sizeof answer);
    answer[kTagBytes] = static_cast<char>(kind);
    value.copy(answer + kHeadBytes, value.size());
    return question.from.am_send(reply,
                                 std::as_bytes(std::span(answer, kHeadBytes + value.size())));
  };
  const std::string_view key = text.substr(kHeadBytes);
  if (const Crossing* const crossing = environment_.crossing; crossing != nullptr) {
    const uint32_t owner = crossing->owner_of(key);
    const char number[] = {static_cast<char>(owner)};
    if (owner != crossing->own) {
      const SendStatus sent = send(Answer::kElsewhere, {number, sizeof number});
      return sent == SendStatus::kAgain ? Verdict::kAgain : Verdict::kDone;
    }
  }
  environment_.cache->set_time(environment_.loop->now_ns());
  CacheItem* item = environment_.cache->find(key);
  BP_DCHECK(item == nullptr || item->is_linked);
  const std::string_view value = item != nullptr ? value_of(*item) : "";
  SendStatus status = SendStatus::kRefused;
  if (item != nullptr && value.size() > kCopyMax) {
    answer[kTagBytes] = static_cast<char>(Answer::kFound);
    status = lend(question.from, reply, std::as_bytes(std::span(answer, kHeadBytes)),
                  std::as_writable_bytes(std::span(item->body(), value.size())), item);
    if (status == SendStatus::kPending) environment_.cache->pin(*item);
  }
  if (status == SendStatus::kRefused) {
    const uint32_t most = std::min(question.from.limits().am_bytes_max, kAnswerBytesMax);
    const bool fits = kHeadBytes + value.size() <= most;
    status = item == nullptr ? send(Answer::kNone, "")
             : fits          ? send(Answer::kFound, value)
                             : send(Answer::kUnreachable, "");
  }
  if (status == SendStatus::kAgain) return Verdict::kAgain;
  environment_.counters->count_get(item != nullptr);
  if (item != nullptr) Items(environment_).use(*item);
  return Verdict::kDone;
}

}  // namespace bedplate::kvd
