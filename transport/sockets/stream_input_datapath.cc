#include "transport/sockets/stream_input_datapath.h"

#include <cstring>

namespace bedplate {

uint64_t StreamFill::copy(const char* from, uint64_t bytes) noexcept {
  const uint64_t copied = std::min(bytes, left_bytes_);
  std::memcpy(end_ - left_bytes_, from, copied);
  left_bytes_ -= copied;
  return copied;
}

bool StreamInput::is_valid() const noexcept {
  if (begin_ > end_ || end_ > buffer_.size()) return false;
  if (fill_.left_bytes() > 0 && (begin_ != end_ || skip_bytes_ > 0)) return false;
  return fill_.is_valid();
}

void StreamInput::forget_arrived() noexcept {
  fill_.forget();
  skip_bytes_ = wanted_bytes_ = 0;
  begin_ = end_ = 0;
  is_arrived_kept_ = false;
}

StreamInput::Input StreamInput::next_pieces() noexcept {
  uint32_t count = 0;
  const iovec fill = fill_.next_input();
  if (fill.iov_len > 0) pieces_[count++] = fill;
  // Moves the rest to the front if it is empty, or ends in the second half of the buffer.
  if (begin_ > 0 && !is_arrived_kept_ && (begin_ == end_ || end_ > buffer_.size() / 2)) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ < buffer_.size()) pieces_[count++] = {buffer_.data() + end_, buffer_.size() - end_};
  return {pieces_, count, std::max<uint64_t>(fill.iov_len, 1)};
}

void StreamInput::add_arrived(uint64_t bytes) noexcept {
  BP_ASSERT(bytes > 0 && bytes <= fill_.left_bytes() + (buffer_.size() - end_));
  if (fill_.left_bytes() > 0) {
    bytes -= fill_.arrived(bytes);
    const uint64_t copied = fill_.copy(buffer_.data() + end_, bytes);
    begin_ = end_ += static_cast<uint32_t>(copied);
    bytes -= copied;
  }
  end_ += static_cast<uint32_t>(bytes);
}

void StreamInput::fill(char* memory, uint64_t bytes) noexcept {
  BP_DREQUIRE(memory != nullptr && !is_moving(),
              "a step skips or fills twice, or fills nothing: StreamSession::skip, fill");
  fill_.begin(memory, bytes);
  take(fill_.copy(buffer_.data() + begin_, end_ - begin_));
}

}  // namespace bedplate
