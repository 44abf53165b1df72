// StreamInput: the bytes of a peer that have arrived, and that its session has not taken yet; the
// base of StreamSession (stream_session_datapath.h).
//
// They lie in a buffer, which holds the longest request without its body. A step may have the next
// ones put into memory of its own, or dropped, also those that have yet to arrive. Threads: the
// session's.
//
// Invariants, looked at by is_valid(): 1. Arrived bytes lie within the buffer. 2. While fill()
// waits for bytes, the buffer is empty, and nothing is skipped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include <sys/uio.h>

#include "platform/assert.h"

namespace bedplate {

class StreamSession;

// The memory that StreamInput::fill() fills. Some of its bytes are copied from the buffer, the
// others arrive in place.
class StreamFill {
 public:
  uint64_t left_bytes() const noexcept { return left_bytes_; }
  // Begins with `memory`, which is empty.
  void begin(char* memory, uint64_t bytes) noexcept {
    end_ = memory + bytes;
    left_bytes_ = bytes;
  }
  void forget() noexcept { left_bytes_ = 0; }

  // The rest of the memory, which the next input receives into first; perhaps it is empty.
  iovec next_input() noexcept {
    input_bytes_ = left_bytes_;
    return {end_ - left_bytes_, left_bytes_};
  }
  // `bytes` have arrived in the input. Returns how many of them are in place. It may have begun
  // after the input: then the first ones are in the buffer, though they are its own.
  uint64_t arrived(uint64_t bytes) noexcept {
    const uint64_t in_place = std::min(bytes, input_bytes_);
    left_bytes_ -= in_place;
    return in_place;
  }
  // Copies as many of the next `bytes`, at `from`, as it needs. Returns their number.
  uint64_t copy(const char* from, uint64_t bytes) noexcept;

  bool is_valid() const noexcept { return left_bytes_ == 0 || end_ != nullptr; }

 private:
  char* end_ = nullptr;
  uint64_t left_bytes_ = 0;
  uint64_t input_bytes_ = 0;  // how many bytes of the last input are for this memory
};

class StreamInput {
 public:
  // Ownership: `buffer` outlives this.
  explicit StreamInput(std::span<char> buffer) noexcept : buffer_(buffer) {}

  // The memory for the next bytes, in `pieces`; a receive of `min_bytes` is worth a call.
  struct Input {
    iovec* pieces;
    uint32_t piece_count;
    uint64_t min_bytes;
  };

  // ---- For the protocol to call, from work() alone ----

  // The bytes that have arrived and were not taken. They move between steps, so a pointer into them
  // is good in this step only.
  std::string_view arrived() const noexcept { return {buffer_.data() + begin_, end_ - begin_}; }
  // The first line of arrived(), with its '\n'; empty: it is not complete yet.
  std::string_view arrived_line() const noexcept {
    return arrived().substr(0, arrived().find('\n') + 1);
  }
  // With `is_kept`, the bytes of arrived() also stay in place between steps, so pointers to them
  // stay good, even once they are taken. Less can arrive meanwhile. Not while fill() waits.
  void keep_arrived(bool is_kept) noexcept { is_arrived_kept_ = is_kept; }
  // Nothing more can arrive until the protocol takes some bytes.
  bool is_input_full() const noexcept { return end_ - begin_ == buffer_.size(); }
  // Takes `bytes` from the front. Requires: they have arrived.
  void take(uint64_t bytes) noexcept {
    BP_DREQUIRE(bytes <= end_ - begin_,
                "a step takes more bytes than have arrived: StreamSession::take");
    begin_ += static_cast<uint32_t>(bytes);
  }
  // Drops `bytes` before the next step, also bytes that have yet to arrive. Requires: neither
  // skip() nor fill() was called before in this step.
  void skip(uint64_t bytes) noexcept {
    BP_DREQUIRE(!is_moving(), "a step skips or fills twice: StreamSession::skip, fill");
    skip_bytes_ = bytes;
  }
  // Puts the next `bytes` into `memory`; the next step comes when all of them are there. Copies
  // those that have arrived; the socket receives the others straight into `memory`. Ownership:
  // `memory` stays until the next step, or left(). Requires: neither fill() nor skip() was called
  // before in this step.
  void fill(char* memory, uint64_t bytes) noexcept;
  // Skips further steps until `arrived_bytes` have arrived. Only before work() returns false.
  // Requires: more than have arrived, at most the size of the input buffer.
  void want(uint64_t arrived_bytes) noexcept {
    BP_DREQUIRE(arrived_bytes > end_ - begin_ && arrived_bytes <= buffer_.size(),
                "a step wants bytes that are there, or more than fit: StreamSession::want");
    wanted_bytes_ = arrived_bytes;
  }

 private:
  friend class StreamSession;

  // fill() or skip() has not ended.
  bool is_moving() const noexcept { return fill_.left_bytes() > 0 || skip_bytes_ > 0; }
  // A part of a request has come, and the rest has not.
  bool has_begun() const noexcept { return is_moving() || begin_ != end_; }
  Input next_pieces() noexcept;
  // `bytes` have arrived in the pieces of next_pieces(), in order.
  void add_arrived(uint64_t bytes) noexcept;
  // The first `bytes` of next_pieces(), if nothing is filled.
  std::span<const char> just_added(uint64_t bytes) const noexcept {
    BP_DCHECK(!is_moving() && bytes <= buffer_.size() - end_);
    return buffer_.subspan(end_, bytes);
  }
  // Drops what skip() wants. Returns whether all has arrived that the next step waits for.
  bool may_step() noexcept {
    if (skip_bytes_ > 0) {
      const uint64_t skipped = std::min<uint64_t>(skip_bytes_, end_ - begin_);
      skip_bytes_ -= skipped;
      take(skipped);
    }
    if (is_moving() || end_ - begin_ < wanted_bytes_) return false;
    wanted_bytes_ = 0;
    return true;
  }
  void forget_arrived() noexcept;
  bool is_valid() const noexcept;

  const std::span<char> buffer_;
  bool is_arrived_kept_ = false;
  StreamFill fill_;
  uint64_t skip_bytes_ = 0;
  uint64_t wanted_bytes_ = 0;
  uint32_t begin_ = 0;  // the filled part of the buffer: from begin_ to end_
  uint32_t end_ = 0;
  iovec pieces_[2];
};

}  // namespace bedplate
