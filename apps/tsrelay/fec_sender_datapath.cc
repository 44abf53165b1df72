#include "apps/tsrelay/fec_sender_datapath.h"

#include "platform/assert.h"

namespace bedplate::relay {

bool FecSender::is_valid() const noexcept {
  if (matrix_.columns == 0) return position_ == 0;
  if (position_ >= matrix_.columns * matrix_.rows) return false;
  const auto is_sum_valid = [this](const Sum& sum) {
    if (sum.count == 0) return sum.buffer == nullptr;
    return (sum.buffer != nullptr || sum.is_bad) &&
           (sum.is_bad || kFecHeadersBytes + sum.bytes <= matrix_.buffer_bytes);
  };
  const uint32_t whole_rows = position_ / matrix_.columns;
  const uint32_t in_row = position_ % matrix_.columns;
  for (uint32_t i = 0; i < matrix_.columns; ++i) {
    if (columns_[i].count != whole_rows + (i < in_row ? 1 : 0)) return false;
    if (!is_sum_valid(columns_[i]) || !is_sum_valid(waiting_[i])) return false;
    if (waiting_[i].count != 0 && waiting_[i].count != matrix_.rows) return false;
  }
  return is_sum_valid(row_) && row_.count == (matrix_.has_row_packets ? in_row : 0);
}

void FecSender::give(Sum& sum) noexcept {
  if (sum.buffer != nullptr) matrix_.sink->give_buffer(sum.buffer);
  sum = {};
}

// Counts the rows and columns that have packets and whose sum was not sent.
uint64_t FecSender::begun_count() const noexcept {
  uint64_t count = row_.count > 0 ? 1 : 0;
  for (uint32_t i = 0; i < matrix_.columns; ++i) {
    count += (columns_[i].count > 0 ? 1 : 0) + (waiting_[i].count > 0 ? 1 : 0);
  }
  return count;
}

void FecSender::restart() noexcept {
  give(row_);
  for (Sum& sum : columns_) give(sum);
  for (Sum& sum : waiting_) give(sum);
  has_begun_ = false;
  position_ = 0;
  BP_DCHECK_SLOW(is_valid());
}

void FecSender::add_to(Sum& sum, std::span<const std::byte> body, const RtpPacket& rtp) noexcept {
  // The step between the set's packets is the one that its header will give.
  [[maybe_unused]] const uint32_t step = &sum == &row_ ? 1 : matrix_.columns;
  BP_DCHECK(sum.count == 0 || rtp.sequence == static_cast<uint16_t>(sum.base + sum.count * step));
  if (sum.count++ == 0) {
    sum.base = rtp.sequence;
    sum.buffer = matrix_.sink->take_buffer();
    sum.is_bad = sum.buffer == nullptr;
  }
  if (kFecHeadersBytes + body.size() > matrix_.buffer_bytes) sum.is_bad = true;
  if (sum.is_bad) return;
  std::byte* bytes = sum.buffer + kFecHeadersBytes;
  const size_t both = std::min<size_t>(sum.bytes, body.size());
  add_sum(bytes, body.data(), both);
  std::memcpy(bytes + both, body.data() + both, body.size() - both);  // 0 plus these bytes
  sum.bytes = std::max(sum.bytes, static_cast<uint32_t>(body.size()));
  sum.length = static_cast<uint16_t>(sum.length ^ body.size());
  sum.type ^= rtp.payload_type;
  sum.timestamp ^= rtp.timestamp;
  sum.marker ^= rtp.has_marker ? 1 : 0;
  sum.flags = static_cast<uint8_t>(
      sum.flags ^ ((rtp.has_padding ? 0x20 : 0) | (rtp.has_extension ? 0x10 : 0) | rtp.csrc_count));
}

void FecSender::send(Sum& sum, bool is_row) noexcept {
  BP_DCHECK(sum.count == (is_row ? matrix_.columns : matrix_.rows));
  if (sum.is_bad) {
    ++unprotected_count_;
    return give(sum);
  }
  RtpPacket head;
  head.sequence = is_row ? row_sequence_++ : column_sequence_++;
  head.timestamp = timestamp_;
  head.payload_type = kFecPayloadType;
  head.has_marker = sum.marker != 0;
  head.has_padding = (sum.flags & 0x20) != 0;
  head.has_extension = (sum.flags & 0x10) != 0;
  head.csrc_count = sum.flags & 0x0F;
  std::byte* bytes = sum.buffer;
  write_rtp(head, bytes);
  store_u16(bytes + 12, sum.base);
  store_u16(bytes + 14, sum.length);
  store_u8(bytes + 16, 0x80U | sum.type);
  store_u24(bytes + 17, 0);
  store_u32(bytes + 20, sum.timestamp);
  store_u8(bytes + 24, is_row ? 0x40 : 0);
  store_u8(bytes + 25, is_row ? 1 : matrix_.columns);
  store_u8(bytes + 26, sum.count);
  store_u8(bytes + 27, 0);
  const uint32_t whole_bytes = kFecHeadersBytes + sum.bytes;
  sum = {};
  matrix_.sink->send_fec(bytes, whole_bytes, is_row);
}

void FecSender::add(std::span<const std::byte> body, const RtpPacket& rtp) noexcept {
  if (matrix_.columns == 0) return;
  BP_DCHECK_SLOW(is_valid());
  if (has_begun_ && rtp.sequence != next_sequence_) {
    unprotected_count_ += begun_count();
    restart();
  }
  has_begun_ = true;
  next_sequence_ = static_cast<uint16_t>(rtp.sequence + 1);
  timestamp_ = rtp.timestamp;
  const uint32_t column = position_ % matrix_.columns;
  if (matrix_.has_row_packets) add_to(row_, body, rtp);
  add_to(columns_[column], body, rtp);
  const bool is_row_over = column + 1 == matrix_.columns;
  // Sends one column of the last matrix for every `rows` packets: all leave before this matrix
  // ends.
  if (position_ % matrix_.rows == 0) {
    BP_DCHECK(position_ / matrix_.rows < matrix_.columns);
    Sum& waiting = waiting_[position_ / matrix_.rows];
    if (waiting.count > 0) send(waiting, false);
  }
  if (is_row_over && matrix_.has_row_packets) send(row_, true);
  if (++position_ < matrix_.columns * matrix_.rows) {
    BP_DCHECK_SLOW(is_valid());
    return;
  }
  position_ = 0;
  for (uint32_t i = 0; i < matrix_.columns; ++i) {
    BP_DCHECK(waiting_[i].count == 0);
    waiting_[i] = columns_[i];
    columns_[i] = {};
  }
  BP_DCHECK_SLOW(is_valid());
}

}  // namespace bedplate::relay
