#include "transport/sockets/stream_session_datapath.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "platform/assert.h"

namespace bedplate {

bool StreamSession::is_valid() const noexcept {
  if (begin_ > end_ || end_ > input_.size() || text_bytes_ > output_.size()) return false;
  if (piece_count_ > kPieces || loan_count_ > piece_count_) return false;
  if (fill_left_ > 0 && (fill_end_ == nullptr || begin_ != end_ || skip_bytes_ > 0)) return false;
  uint64_t waiting = 0, spare = 0, finished = 0;
  for (const LaterAnswer& each : later_) {
    waiting += each.state_ == LaterAnswer::State::kWaits ? 1 : 0;
    spare += each.state_ == LaterAnswer::State::kSpare ? 1 : 0;
    finished += each.state_ == LaterAnswer::State::kFinished ? 1 : 0;
  }
  const auto queued = answers_.count(later_.size(), [](const LaterAnswer& each) {
    return each.state_ == LaterAnswer::State::kWaits ||
           each.state_ == LaterAnswer::State::kFinished;
  });
  if (waiting != waiting_count_ ||
      waiting + spare + finished + (held_ != nullptr) != later_.size()) {
    return false;
  }
  if (queued != finished + (order_ == AnswerOrder::kOfRequests ? waiting : 0)) return false;
  const auto is_spare = [](const LaterAnswer& each) {
    return each.state_ == LaterAnswer::State::kSpare;
  };
  if (!free_.has_just(spare, is_spare)) return false;
  if (is_sending_) return piece_count_ > 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < piece_count_; ++i) bytes += pieces_[i].iov_len;
  return bytes == reply_bytes_ && text_bytes_ <= bytes;
}

void StreamSession::leave() noexcept {
  if (has_left_) return;
  has_left_ = true;
  left();
}

void StreamSession::reset() noexcept {
  BP_ASSERT(!is_waiting() && !is_running_);
  leave();
  is_over_ = true;  // nothing is left to work on
  while (!answers_.is_empty()) drop(answers_.pop());
  handed_bytes_ = 0;
  sent(0);
  is_over_ = has_left_ = false;
  foreign_ = nullptr;
  for (Times& times : times_) times.count = times.untimed_count = 0;
  fill_left_ = skip_bytes_ = wanted_bytes_ = 0;
  begin_ = end_ = 0;
  is_starved_ = true;
  BP_DCHECK_SLOW(is_valid());
}

// ---- requests -----------------------------------------------------------------------------------

StreamSession::Input StreamSession::input() noexcept {
  BP_KEEPS_VALID(*this);
  if (is_over_) return {input_pieces_, 0, 0};
  uint32_t count = 0;
  if (fill_left_ > 0) input_pieces_[count++] = {fill_end_ - fill_left_, fill_left_};
  // Moves the rest to the front if it is empty, or ends in the second half of the buffer.
  if (begin_ > 0 && (begin_ == end_ || end_ > input_.size() / 2)) {
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
  const uint64_t filled = std::min(bytes, fill_left_);
  fill_left_ -= filled;
  end_ += static_cast<uint32_t>(bytes - filled);
  // Requests that wait behind a send keep the time of their arrival.
  if (is_starved_) received_ns_ = now_ns;
  run(now_ns);
}

bool StreamSession::has_room() const noexcept {
  // A loan may take two pieces: its own, and one for the text before or after it.
  return text_bytes_ + kStepTextBytes <= output_.size() &&
         piece_count_ + 2 * kStepLoans < kPieces && reply_bytes_ < kBatchBytes;
}

void StreamSession::run(uint64_t now_ns) noexcept {
  BP_DCHECK(!is_running_);
  is_running_ = true;
  is_starved_ = false;
  send_finished(now_ns);
  while (may_step()) {
    if (skip_bytes_ > 0) {
      const uint64_t skipped = std::min<uint64_t>(skip_bytes_, end_ - begin_);
      skip_bytes_ -= skipped;
      take(skipped);
      is_starved_ = skip_bytes_ > 0;
      continue;
    }
    is_starved_ = fill_left_ > 0 || end_ - begin_ < wanted_bytes_;
    if (is_starved_) break;
    wanted_bytes_ = 0;
    step(now_ns);
    BP_DCHECK_SLOW(is_valid());
  }
  is_running_ = false;
}

// Behind a waiting answer, a LaterAnswer takes what the step says.
void StreamSession::step(uint64_t now_ns) noexcept {
  if (BP_UNLIKELY(!answers_.is_empty() && order_ == AnswerOrder::kOfRequests)) {
    held_ = &free_.pop();
    held_->begin(LaterAnswer::State::kHeld, received_ns_);
  }
  const StreamStep outcome = work(now_ns);
  is_starved_ = outcome == StreamStep::kStarved;
  is_waiting_ = outcome == StreamStep::kWaits;
  if (BP_LIKELY(later_.empty())) return;
  if (LaterAnswer* const held = std::exchange(held_, nullptr); held != nullptr) {
    held->state_ = held->is_empty() ? LaterAnswer::State::kSpare : LaterAnswer::State::kFinished;
    held->is_empty() ? free_.push(*held) : answers_.push(*held);
  }
  send_finished(now_ns);
}

void StreamSession::resume(uint64_t now_ns) noexcept {
  BP_ASSERT(is_waiting_ && !is_running_);
  is_waiting_ = false;
  if (!has_left_) run(now_ns);
  changed();
}

void StreamSession::fill(char* memory, uint64_t bytes) noexcept {
  BP_DCHECK(memory != nullptr && fill_left_ == 0 && skip_bytes_ == 0);
  const uint64_t there = std::min<uint64_t>(bytes, end_ - begin_);
  std::memcpy(memory, input_.data() + begin_, there);
  take(there);
  fill_end_ = memory + bytes;
  fill_left_ = bytes - there;
}

// ---- answers that come later --------------------------------------------------------------------

LaterAnswer& StreamSession::later() noexcept {
  BP_ASSERT(is_running_ && (held_ != nullptr || !free_.is_empty()));
  LaterAnswer* answer = std::exchange(held_, nullptr);
  if (answer == nullptr) {
    answer = &free_.pop();
    answer->begin(LaterAnswer::State::kHeld, received_ns_);
  }
  answer->state_ = LaterAnswer::State::kWaits;
  if (order_ == AnswerOrder::kOfRequests) answers_.push(*answer);
  ++waiting_count_;
  count_waiting(+1);
  return *answer;
}

void StreamSession::count_waiting(int32_t more) noexcept {
  if (waiting_total_ == nullptr) return;
  waiting_total_->set(waiting_total_->read() + static_cast<uint64_t>(int64_t{more}));
}

void StreamSession::finished(LaterAnswer& answer, uint64_t now_ns) noexcept {
  BP_ASSERT(answer.state_ == LaterAnswer::State::kWaits && waiting_count_ > 0);
  answer.state_ = LaterAnswer::State::kFinished;
  if (order_ == AnswerOrder::kAny) answers_.push(answer);
  --waiting_count_;
  count_waiting(-1);
  if (is_running_) return;  // finished within work(): step() goes on with it
  if (!has_left_) run(now_ns);
  changed();
}

// Moves finished answers into the replies, as far as order and space allow.
void StreamSession::send_finished(uint64_t now_ns) noexcept {
  while (!is_sending_ && has_room()) {
    LaterAnswer* const answer = answers_.first();
    if (answer == nullptr || answer->state_ != LaterAnswer::State::kFinished) return;
    answers_.pop();
    const std::string_view text(answer->text_, answer->text_bytes_);
    append(text.substr(0, answer->lent_at_));
    if (answer->lent_.data() != nullptr) append_loan(answer->lent_, answer->loan_);
    append(text.substr(answer->lent_at_));
    if (answer->time_ns_ != nullptr) {
      answer->time_ns_->add(now_ns - answer->received_ns_);
      ++times_of(*answer->time_ns_, answer->kind_).count;
    }
    answer->state_ = LaterAnswer::State::kSpare;
    free_.push(*answer);
  }
}

// Nobody reads the answer.
void StreamSession::drop(LaterAnswer& answer) noexcept {
  if (answer.lent_.data() != nullptr) released(answer.loan_);
  answer.state_ = LaterAnswer::State::kSpare;
  free_.push(answer);
}

bool LaterAnswer::is_wanted() const noexcept { return !session_->has_left(); }

void LaterAnswer::say_number(uint64_t number) noexcept {
  char digits[20];
  say({digits, static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits)});
}

void LaterAnswer::finish(uint64_t now_ns) noexcept { session_->finished(*this, now_ns); }

// ---- replies ------------------------------------------------------------------------------------

void StreamSession::say(std::string_view text) noexcept {
  if (BP_UNLIKELY(held_ != nullptr)) return held_->say(text);
  BP_DCHECK(order_ == AnswerOrder::kAny || answers_.is_empty());
  append(text);
}

void StreamSession::lend(std::string_view text, void* loan) noexcept {
  if (BP_UNLIKELY(held_ != nullptr)) return held_->lend(text, loan);
  BP_DCHECK(order_ == AnswerOrder::kAny || answers_.is_empty());
  append_loan(text, loan);
}

void StreamSession::append(std::string_view text) noexcept {
  if (text.empty()) return;
  char* const to = output_.data() + text_bytes_;
  BP_DCHECK(!is_sending_ && text.size() <= output_.size() - text_bytes_);
  std::memcpy(to, text.data(), text.size());
  text_bytes_ += static_cast<uint32_t>(text.size());
  reply_bytes_ += text.size();
  iovec* last = piece_count_ == 0 ? nullptr : &pieces_[piece_count_ - 1];
  if (last != nullptr && static_cast<char*>(last->iov_base) + last->iov_len == to) {
    last->iov_len += text.size();
  } else {
    BP_DCHECK(piece_count_ < kPieces);
    pieces_[piece_count_++] = {to, text.size()};
  }
}

void StreamSession::say_number(uint64_t number) noexcept {
  char digits[20];
  say({digits, static_cast<size_t>(std::to_chars(digits, std::end(digits), number).ptr - digits)});
}

void StreamSession::append_loan(std::string_view text, void* loan) noexcept {
  BP_DCHECK(!is_sending_ && piece_count_ < kPieces && loan_count_ < kPieces);
  loans_[loan_count_++] = loan;
  pieces_[piece_count_++] = {const_cast<char*>(text.data()), text.size()};
  reply_bytes_ += text.size();
}

std::span<iovec> StreamSession::replies() noexcept {
  BP_KEEPS_VALID(*this);
  if (is_sending_ || piece_count_ == 0) return {};
  is_sending_ = true;
  return {pieces_, piece_count_};
}

void StreamSession::answered(Histogram& time_ns, uint8_t kind) noexcept {
  if (BP_UNLIKELY(held_ != nullptr)) return held_->answered(time_ns, kind);
  Times& times = times_of(time_ns, kind);
  ++times.count;
  ++times.untimed_count;
}

StreamSession::Times& StreamSession::times_of(Histogram& time_ns, uint8_t kind) noexcept {
  for (Times& times : times_) {
    if (times.time_ns == nullptr) {
      times.time_ns = &time_ns;
      times.kind = kind;
    }
    if (times.time_ns != &time_ns) continue;
    BP_DCHECK(times.kind == kind);
    return times;
  }
  BP_ASSERT(!"more than kTimesMax histograms");
  return times_[0];
}

void StreamSession::handed_over(uint64_t now_ns) noexcept {
  BP_DCHECK(is_sending_);
  for (Times& times : times_) {
    const uint32_t count = std::exchange(times.untimed_count, 0);
    if (count > 0) times.time_ns->add(now_ns - received_ns_, count);
  }
  handed_bytes_ = reply_bytes_;
  trace_.begin(received_ns_);
  trace_.pass(1, now_ns);
}

void StreamSession::tell_trace(uint64_t now_ns) noexcept {
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(handed_bytes_, UINT32_MAX));
  if (std::exchange(handed_bytes_, 0) == 0) return;
  trace_.pass(2, now_ns);
  for (Times& times : times_) {
    const uint32_t count = std::exchange(times.count, 0);
    if (count > 0) writer_.write(trace_, {count, bytes, 0, times.kind});
  }
}

void StreamSession::sent(uint64_t now_ns) noexcept {
  BP_DCHECK_SLOW(is_valid());
  tell_trace(now_ns);
  while (loan_count_ > 0) released(loans_[--loan_count_]);
  text_bytes_ = piece_count_ = 0;
  reply_bytes_ = 0;
  is_sending_ = false;
  BP_DCHECK_SLOW(is_valid());
  run(now_ns);
}

}  // namespace bedplate
