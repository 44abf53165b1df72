// The answers of a session of kvd to commands, in the words of memcached's text protocol.
//
// Session, which derives from it, reads commands and decides where they are executed. A command for
// a key of this shard is executed and answered at once. Another one was executed as an Operation
// (operation_datapath.h), and is answered when its turn comes: by the same words.
//
// Long texts of items are sent from where they lie, pinned until released(): those of this shard by
// its cache, those of others by their wave. Threads: the session's. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "apps/kvd/items_datapath.h"
#include "apps/kvd/operation_datapath.h"
#include "apps/kvd/request_datapath.h"
#include "apps/kvd/wave_datapath.h"
#include "transport/loop/request_limit_datapath.h"
#include "transport/sockets/stream_session_datapath.h"

namespace bedplate::kvd {

// The kinds of commands in `bedplate trace`, one for each histogram that counts them.
enum RequestKind : uint8_t { kKindGet, kKindSet, kKindOther };
inline constexpr const char* kRequestKinds = "get|set|other";

// Invariant: an item that a reply lends is linked, or was when its owner pinned it: nobody writes
// it. (answer_text)
class SessionAnswers : public StreamSession {
 protected:
  static constexpr uint32_t kCopyMax = 1024;  // longer texts of pinned items are not copied

  SessionAnswers(const Environment& environment, std::span<char> input,
                 std::span<char> output) noexcept
      : StreamSession(input, output),
        environment_(environment),
        cache_(*environment.cache),
        items_(environment) {
    Crossing* const crossing = environment.crossing;
    if (crossing == nullptr) return;
    BP_ASSERT(!crossing->spare.is_empty());
    wave_ = &crossing->spare.pop();
  }
  // Requires: its wave is idle.
  ~SessionAnswers() {
    if (wave_ != nullptr) environment_.crossing->spare.push(*wave_);
  }

  void released(void* loan) noexcept override {
    if (BP_UNLIKELY(wave_ != nullptr) && wave_->has(loan)) {
      return wave_->sent(*static_cast<Operation*>(loan));
    }
    cache_.release(*static_cast<CacheItem*>(loan));
  }

  bool has_open_wave() const noexcept { return wave_ != nullptr && wave_->is_open(); }

  // Answers the current command, unless its client wants no answer.
  void answer(std::string_view text) noexcept {
    if (!request_.is_quiet()) say(text);
  }
  void answer_outcome(Work work, Outcome outcome, uint64_t number = 0) noexcept {
    if (!request_.is_quiet()) say_outcome(work, outcome, number);
  }
  // `number`: the result of a count.
  void say_outcome(Work work, Outcome outcome, uint64_t number) noexcept;
  // Answers a key of a get.
  void answer_here(std::string_view key) noexcept {
    if (BP_UNLIKELY(request_.form->get != Form::kGet)) return answer_more(key);
    CacheItem* const item = items_.get(key);
    if (item != nullptr) answer_text(*item, item->text());
  }
  void answer_more(std::string_view key) noexcept;
  // Says the head of an item's text with its version, and removes the head from *text.
  void say_head(std::string_view* text, size_t head_bytes, uint64_t version) noexcept;
  // Answers the end of an item's text, whatever its length.
  void answer_text(CacheItem& item, std::string_view text) noexcept {
    BP_DCHECK(item.is_linked && item.text().starts_with(kValueWord));
    if (text.size() <= kCopyMax) return say(text);
    BP_DCHECK(text.ends_with(kLineEnd) && item.text().ends_with(text));
    cache_.pin(item);
    lend(text, &item);
  }
  void answer_meta() noexcept;
  void answer_stored(const Items::Changed& changed) noexcept;
  void answer_stats() noexcept;

  // Answers an operation of the wave, but no kMake. Returns whether its text is lent, and it
  // crossed.
  bool answer_operation(Operation& operation) noexcept;
  bool answer_got(Operation& operation) noexcept;
  bool answer_pinned(Operation& operation, std::string_view text) noexcept;
  // Whether the limit is another shard's.
  bool is_far(const RequestLimit& limit) const noexcept;
  void charge(RequestLimit& limit, bool is_write, uint64_t bytes) noexcept;
  // Counts the bytes of a value of another shard for the limit of the listener, if it has one.
  void charge_read(uint64_t bytes) noexcept;

  const Environment& environment_;
  KeyedCache& cache_;
  Items items_;
  Wave* wave_ = nullptr;  // to other shards; nullptr: there are none
  Request request_;       // the current command
};

}  // namespace bedplate::kvd
