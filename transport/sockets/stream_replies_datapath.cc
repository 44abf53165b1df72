#include "transport/sockets/stream_replies_datapath.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace bedplate {

bool StreamReplies::is_valid() const noexcept {
  if (text_bytes_ > output_.size() || piece_count_ > kPieces || loan_count_ > piece_count_) {
    return false;
  }
  if (is_sending_) return piece_count_ > 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < piece_count_; ++i) bytes += pieces_[i].iov_len;
  return bytes == bytes_ && text_bytes_ <= bytes;
}

void StreamReplies::say(std::string_view text) noexcept {
  if (text.empty()) return;
  char* const to = output_.data() + text_bytes_;
  BP_DCHECK(!is_sending_);
  BP_DREQUIRE(text.size() <= output_.size() - text_bytes_,
              "a step says more than %u bytes: StreamSession::say", kStepTextBytes);
  std::memcpy(to, text.data(), text.size());
  text_bytes_ += static_cast<uint32_t>(text.size());
  bytes_ += text.size();
  iovec* last = piece_count_ == 0 ? nullptr : &pieces_[piece_count_ - 1];
  if (last != nullptr && static_cast<char*>(last->iov_base) + last->iov_len == to) {
    last->iov_len += text.size();
  } else {
    BP_DCHECK(piece_count_ < kPieces);
    pieces_[piece_count_++] = {to, text.size()};
  }
}

void StreamReplies::lend(std::string_view text, void* loan) noexcept {
  BP_DCHECK(!is_sending_);
  BP_DREQUIRE(piece_count_ < kPieces && loan_count_ < kPieces,
              "a step lends more than %u times: StreamSession::lend", kStepLoans);
  loans_[loan_count_++] = loan;
  pieces_[piece_count_++] = {const_cast<char*>(text.data()), text.size()};
  bytes_ += text.size();
}

StreamReplies::Times& StreamReplies::times_of(Histogram& time_ns, uint8_t kind) noexcept {
  for (Times& times : times_) {
    if (times.time_ns == nullptr) {
      times.time_ns = &time_ns;
      times.kind = kind;
    }
    if (times.time_ns != &time_ns) continue;
    BP_DCHECK(times.kind == kind);
    return times;
  }
  contract_broken("a session counts into more than %u histograms: StreamSession::answered",
                  kTimesMax);
}

std::span<iovec> StreamReplies::begin_send() noexcept {
  if (is_sending_ || piece_count_ == 0) return {};
  is_sending_ = true;
  return {pieces_, piece_count_};
}

void StreamReplies::handed_over(uint64_t received_ns, uint64_t now_ns) noexcept {
  BP_DCHECK(is_sending_);
  for (Times& times : times_) {
    const uint32_t count = std::exchange(times.untimed_count, 0);
    if (count > 0) times.time_ns->add(now_ns - received_ns, count);
  }
  handed_bytes_ = bytes_;
  trace_.begin(received_ns);
  trace_.pass(1, now_ns);
}

bool StreamReplies::take_loan(void** loan) noexcept {
  if (loan_count_ == 0) return false;
  *loan = loans_[--loan_count_];
  return true;
}

void StreamReplies::write_trace(uint64_t now_ns) noexcept {
  const uint64_t handed_bytes = std::exchange(handed_bytes_, 0);
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(handed_bytes, UINT32_MAX));
  trace_.pass(2, now_ns);
  for (Times& times : times_) {
    const uint32_t count = std::exchange(times.count, 0);
    if (count > 0 && bytes > 0) writer_.write(trace_, {count, bytes, 0, times.kind});
  }
}

void StreamReplies::end_send(uint64_t now_ns) noexcept {
  BP_DCHECK(loan_count_ == 0);
  write_trace(now_ns);
  text_bytes_ = piece_count_ = 0;
  bytes_ = 0;
  is_sending_ = false;
}

void StreamReplies::reset() noexcept {
  handed_bytes_ = 0;
  end_send(0);
  for (Times& times : times_) times.count = times.untimed_count = 0;
}

}  // namespace bedplate
