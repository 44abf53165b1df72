#include "apps/tsrelay/fec_receiver_datapath.h"

#include "platform/assert.h"

namespace bedplate::relay {

bool FecReceiver::is_valid() const noexcept {
  uint32_t count = 0;
  for (uint32_t i = 0; i < kMediaMax; ++i) {
    if (!media_[i].is_there) continue;
    ++count;
    if ((media_[i].sequence & (kMediaMax - 1)) != i) return false;
  }
  if (count != media_count_ || sum_count_ > kSumsMax) return false;
  for (uint32_t i = 0; i < sum_count_; ++i) {
    if (sums_[i].packet.count == 0 || sums_[i].packet.offset == 0) return false;
  }
  if (!has_newest_ || depth_ == 0) return held_count() == 0;
  return sequence_distance(oldest_, newest_) >= 0;
}

void FecReceiver::keep(uint32_t item, uint16_t sequence) noexcept {
  Media& media = media_at(sequence);
  if (media.is_there) {
    sink_->let_go(media.item);
    --media_count_;
  }
  media = {true, sequence, item};
  ++media_count_;
  BP_DCHECK(media_count_ <= kMediaMax);
}

// Releases packets more than `depth_` behind the newest, and the FEC packets that need them.
void FecReceiver::forget_old(uint16_t newest) noexcept {
  if (has_newest_ && sequence_distance(newest_, newest) <= 0) return;
  if (!has_newest_ || sequence_distance(newest_, newest) > static_cast<int32_t>(kMediaMax)) {
    restart();
    oldest_ = newest;
  }
  has_newest_ = true;
  newest_ = newest;
  const auto wanted = static_cast<uint16_t>(newest - depth_);
  for (; sequence_distance(oldest_, wanted) > 0; ++oldest_) {
    Media& media = media_at(oldest_);
    if (!media.is_there || media.sequence != oldest_) continue;
    sink_->let_go(media.item);
    media.is_there = false;
    --media_count_;
  }
  for (uint32_t i = sum_count_; i-- > 0;) {
    if (sequence_distance(sums_[i].packet.base, wanted) <= 0) continue;
    ++report_.unrecoverable;
    remove_sum(i);
  }
}

void FecReceiver::restart() noexcept {
  for (Media& media : media_) {
    if (media.is_there) sink_->let_go(media.item);
    media.is_there = false;
  }
  media_count_ = 0;
  while (sum_count_ > 0) remove_sum(sum_count_ - 1);
  has_newest_ = false;
  BP_DCHECK_SLOW(is_valid());
}

void FecReceiver::remove_sum(uint32_t index) noexcept {
  BP_DCHECK(index < sum_count_);
  sink_->let_go(sums_[index].item);
  sums_[index] = sums_[--sum_count_];
}

// Returns the number of missing packets of the set; *sequence is one of them.
uint32_t FecReceiver::missing_of(const FecPacket& packet, uint16_t* sequence) noexcept {
  uint32_t missing = 0;
  for (uint32_t i = 0; i < packet.count; ++i) {
    if (has(packet.sequence_at(i))) continue;
    *sequence = packet.sequence_at(i);
    ++missing;
  }
  return missing;
}

void FecReceiver::add_media(uint32_t item, uint16_t sequence) noexcept {
  BP_KEEPS_VALID(*this);
  if (depth_ == 0) return;
  forget_old(sequence);
  if (sequence_distance(oldest_, sequence) < 0) return;  // too late to be useful
  sink_->hold(item);
  keep(item, sequence);
  for (uint32_t i = 0; i < sum_count_; ++i) {
    if (sums_[i].packet.index_of(sequence) < sums_[i].packet.count) return work();
  }
}

void FecReceiver::add_fec(uint32_t item) noexcept {
  BP_KEEPS_VALID(*this);
  ++report_.packets;
  FecPacket packet;
  if (!parse_fec(sink_->bytes_of(item), &packet)) {
    ++report_.malformed;
    return;
  }
  BP_DCHECK(packet.offset * packet.count <= kFecMatrixMax);
  const uint32_t depth = kMatricesHeld * packet.offset * packet.count + kHeldMore;
  depth_ = std::max(depth_, depth);
  // The first FEC packet is useless: no packets were held before it.
  if (!has_newest_ || sequence_distance(oldest_, packet.base) < 0) return;
  uint16_t sequence = 0;
  if (missing_of(packet, &sequence) == 0) return;
  if (sum_count_ == kSumsMax) {
    ++report_.unrecoverable;
    remove_sum(0);
  }
  sink_->hold(item);
  BP_DCHECK(sum_count_ < kSumsMax);
  sums_[sum_count_++] = {item, packet};
  work();
}

// Recovers packets until no set lacks exactly one.
void FecReceiver::work() noexcept {
  for (bool moves = true; moves;) {
    moves = false;
    for (uint32_t i = sum_count_; i-- > 0;) {
      uint16_t sequence = 0;
      const uint32_t missing = missing_of(sums_[i].packet, &sequence);
      if (missing > 1) continue;
      moves = (missing == 1 && recover(sums_[i].packet, sequence)) || moves;
      remove_sum(i);
    }
  }
  BP_DCHECK_SLOW(is_valid());
}

bool FecReceiver::recover(const FecPacket& packet, uint16_t sequence) noexcept {
  BP_DCHECK(!has(sequence) && packet.index_of(sequence) < packet.count);
  std::byte* buffer = sink_->take_buffer();
  if (buffer == nullptr) {
    ++report_.unrecoverable;
    return false;
  }
  const auto refuse = [&] {
    ++report_.malformed;
    sink_->give_buffer(buffer);
    return false;
  };
  const size_t sum_bytes = packet.sum.size();
  if (kRtpHeaderBytes + sum_bytes > buffer_bytes_) return refuse();
  std::byte* body = buffer + kRtpHeaderBytes;
  std::memcpy(body, packet.sum.data(), sum_bytes);
  uint32_t length = packet.length_sum;
  RtpPacket head;
  head.sequence = sequence;
  head.timestamp = packet.timestamp_sum;
  uint32_t type = packet.type_sum;
  uint32_t marker = packet.marker_sum;
  uint32_t flags = packet.flags_sum;
  for (uint32_t i = 0; i < packet.count; ++i) {
    const uint16_t other = packet.sequence_at(i);
    if (other == sequence) continue;
    BP_DCHECK(has(other));
    const std::span<const std::byte> datagram = sink_->bytes_of(media_at(other).item);
    BP_DCHECK(datagram.size() >= kRtpHeaderBytes);
    const std::span<const std::byte> rest = datagram.subspan(kRtpHeaderBytes);
    if (rest.size() > sum_bytes) return refuse();
    add_sum(body, rest.data(), rest.size());
    length ^= static_cast<uint32_t>(rest.size());
    type ^= load_u8(datagram.data() + 1) & 0x7F;
    marker ^= load_u8(datagram.data() + 1) & 0x80;
    flags ^= load_u8(datagram.data()) & kFecFlags;
    head.timestamp ^= load_u32(datagram.data() + 4);
    head.ssrc = load_u32(datagram.data() + 8);
  }
  if (length > sum_bytes) return refuse();
  head.has_padding = (flags & 0x20) != 0;
  head.has_extension = (flags & 0x10) != 0;
  head.csrc_count = flags & 0x0F;
  head.payload_type = static_cast<uint8_t>(type);
  head.has_marker = marker != 0;
  write_rtp(head, buffer);
  RtpPacket made;
  if (parse_rtp({buffer, kRtpHeaderBytes + length}, &made) != RtpFault::kNone) return refuse();
  const uint32_t item = sink_->recovered(buffer, kRtpHeaderBytes + length);
  if (item == FecReceiverSink::kNoItem) return false;
  ++report_.recovered;
  keep(item, sequence);
  return true;
}

}  // namespace bedplate::relay
