#include "transport/sockets/stream_session_datapath.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "platform/assert.h"

namespace bedplate {

bool StreamSession::is_valid() const noexcept {
  if (begin_ > end_ || end_ > input_.size()) return false;
  if (fill_left_ > 0 && (fill_end_ == nullptr || begin_ != end_ || skip_bytes_ > 0)) return false;
  return replies_.is_valid() && later_.is_valid();
}

void StreamSession::leave() noexcept {
  if (has_left_) return;
  has_left_ = is_leaving_ = true;
  left();
  is_leaving_ = false;
}

void StreamSession::reset() noexcept {
  leave();
  BP_ASSERT(!is_waiting() && !is_running_);
  void* loan = nullptr;
  while (replies_.take_loan(&loan)) released(loan);
  replies_.reset();
  // Nobody reads the finished answers that were not sent.
  for (const LaterAnswer* each = later_.next(); each != nullptr; each = later_.next()) {
    if (each->has_loan()) released(each->loan_);
    later_.pop();
  }
  is_over_ = has_left_ = is_arrived_kept_ = false;
  foreign_ = nullptr;
  fill_left_ = skip_bytes_ = wanted_bytes_ = 0;
  received_ns_ = 0;
  begin_ = end_ = 0;
  is_starved_ = true;
  BP_DCHECK_SLOW(is_valid());
}

// ---- requests -----------------------------------------------------------------------------------

StreamSession::Input StreamSession::input() noexcept {
  BP_KEEPS_VALID(*this);
  if (is_over_) return {input_pieces_, 0, 0};
  uint32_t count = 0;
  input_fill_bytes_ = fill_left_;
  if (fill_left_ > 0) input_pieces_[count++] = {fill_end_ - fill_left_, fill_left_};
  // Moves the rest to the front if it is empty, or ends in the second half of the buffer.
  if (begin_ > 0 && !is_arrived_kept_ && (begin_ == end_ || end_ > input_.size() / 2)) {
    std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ < input_.size()) input_pieces_[count++] = {input_.data() + end_, input_.size() - end_};
  return {input_pieces_, count, std::max<uint64_t>(fill_left_, 1)};
}

void StreamSession::received(uint64_t bytes, uint64_t now_ns) noexcept {
  BP_KEEPS_VALID(*this);
  BP_ASSERT(bytes > 0 && bytes <= fill_left_ + (input_.size() - end_));
  if (fill_left_ > 0) bytes = fill_arrived(bytes);
  end_ += static_cast<uint32_t>(bytes);
  // Requests that wait behind a send keep the time of their arrival.
  if (is_starved_) received_ns_ = now_ns;
  run(now_ns);
}

// Returns how many of the arrived bytes are left for the input buffer, from end_ on. A step may have
// called fill() after input(): then its bytes have arrived in the buffer as well.
uint64_t StreamSession::fill_arrived(uint64_t bytes) noexcept {
  const uint64_t in_place = std::min(bytes, input_fill_bytes_);
  fill_left_ -= in_place;
  const uint64_t rest = bytes - in_place;
  const uint64_t copied = std::min(rest, fill_left_);
  if (copied == 0) return rest;
  BP_DCHECK(begin_ == end_);
  std::memcpy(fill_end_ - fill_left_, input_.data() + end_, copied);
  fill_left_ -= copied;
  begin_ = end_ += static_cast<uint32_t>(copied);
  return rest - copied;
}

void StreamSession::run(uint64_t now_ns) noexcept {
  BP_DCHECK(!is_running_);
  const bool has_later = later_.has_any();
  if (BP_UNLIKELY(has_later)) {
    later_.prepare(*this);
    later_.send_finished(replies_, now_ns);
  }
  is_running_ = true;
  is_starved_ = false;
  while (!is_over_ && !is_starved_ && !is_waiting_ && !replies_.is_sending() &&
         replies_.has_room() && later_.may_step()) {
    if (skip_bytes_ > 0) {
      const uint64_t skipped = std::min<uint64_t>(skip_bytes_, end_ - begin_);
      skip_bytes_ -= skipped;
      take(skipped);
      is_starved_ = skip_bytes_ > 0;
    } else {
      is_starved_ = fill_left_ > 0 || end_ - begin_ < wanted_bytes_;
      if (is_starved_) break;
      wanted_bytes_ = 0;
      if (BP_UNLIKELY(has_later)) later_.begin_step(received_ns_);
      const StreamStep outcome = work(now_ns);
      is_starved_ = outcome == StreamStep::kStarved;
      steps_ += is_starved_ ? 0 : 1;
      if (BP_UNLIKELY(outcome == StreamStep::kWaits)) begin_wait();
      if (BP_UNLIKELY(has_later)) {
        later_.end_step();
        later_.send_finished(replies_, now_ns);
      }
      BP_DCHECK_SLOW(is_valid());
    }
  }
  is_running_ = false;
}

void StreamSession::fill(char* memory, uint64_t bytes) noexcept {
  BP_DREQUIRE(memory != nullptr && fill_left_ == 0 && skip_bytes_ == 0,
              "a step skips or fills twice, or fills nothing: StreamSession::skip, fill");
  const uint64_t there = std::min<uint64_t>(bytes, end_ - begin_);
  std::memcpy(memory, input_.data() + begin_, there);
  take(there);
  fill_end_ = memory + bytes;
  fill_left_ = bytes - there;
}

// ---- replies ------------------------------------------------------------------------------------

void StreamSession::say_number(uint64_t number) noexcept {
  char digits[20];
  say({digits, static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits)});
}

std::span<iovec> StreamSession::replies() noexcept {
  BP_KEEPS_VALID(*this);
  return replies_.begin_send();
}

void StreamSession::handed_over(uint64_t now_ns) noexcept {
  replies_.handed_over(received_ns_, now_ns);
}

void StreamSession::sent(uint64_t now_ns) noexcept {
  BP_DCHECK_SLOW(is_valid());
  void* loan = nullptr;
  while (replies_.take_loan(&loan)) released(loan);
  replies_.end_send(now_ns);
  BP_DCHECK_SLOW(is_valid());
  if (!has_left_) run(now_ns);
}

// ---- answers that come later --------------------------------------------------------------------

void StreamSession::begin_wait() noexcept {
  is_waiting_ = true;
  if (AnswerWatch* const watch = later_.watch(); watch != nullptr) watch->began(wait_);
}

void StreamSession::resume(uint64_t now_ns) noexcept {
  BP_REQUIRE(is_waiting_ && !is_running_,
             "a session is resumed that does not wait, or from within work(): "
             "StreamSession::resume");
  is_waiting_ = false;
  if (AnswerWatch* const watch = later_.watch(); watch != nullptr) watch->ended(wait_);
  if (!has_left_) run(now_ns);
  if (owner_.changed != nullptr && !is_leaving_) owner_.changed(owner_.context);
}

void StreamSession::finished(LaterAnswer& answer, uint64_t now_ns) noexcept {
  later_.finish(answer);
  if (is_running_) return;  // finished within a step, which goes on with it
  if (!has_left_) run(now_ns);
  if (owner_.changed != nullptr) owner_.changed(owner_.context);
}

}  // namespace bedplate
