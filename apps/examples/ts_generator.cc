#include "apps/examples/ts_generator.h"

#include <algorithm>
#include <cstring>

#include "apps/tsrelay/psi_datapath.h"
#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate::relay {
namespace {

constexpr uint64_t kPacketBits = uint64_t{kTsPacketBytes} * 8;
constexpr uint64_t kPictureDelay90k = 45'000;  // from sending a picture to showing it
constexpr uint32_t kPcrFieldBytes = 8;         // length, flags, PCR

}  // namespace

TsGenerator::TsGenerator(uint64_t bits_per_second) noexcept : bits_per_second_(bits_per_second) {
  BP_ASSERT(bits_per_second >= kBitsPerSecondMin);
}

uint64_t TsGenerator::ns_of(uint64_t number) const noexcept {
  const uint64_t bits = number * kPacketBits;
  return bits / bits_per_second_ * kNsPerSecond +
         bits % bits_per_second_ * kNsPerSecond / bits_per_second_;
}

uint64_t TsGenerator::pcr_of(uint64_t number) const noexcept {
  const uint64_t bits = number * kPacketBits;
  return (bits / bits_per_second_ * kPcrHz + bits % bits_per_second_ * kPcrHz / bits_per_second_) %
         kPcrModulus;
}

uint64_t TsGenerator::packets_in(uint64_t per_second) const noexcept {
  return std::max<uint64_t>(bits_per_second_ / kPacketBits / per_second, 1);
}

// Writes the header and an adaptation field that leaves exactly `payload_bytes`.
void TsGenerator::write_head(std::byte* to, uint16_t pid, bool begins_unit, uint8_t* counter,
                             uint32_t payload_bytes, bool has_pcr) noexcept {
  const uint32_t field_bytes = kTsPacketBytes - 4 - payload_bytes;
  store_u8(to, kTsSync);
  store_u16(to + 1, (begins_unit ? 0x4000U : 0U) | pid);
  if (payload_bytes > 0) *counter = (*counter + 1) & 0x0F;
  store_u8(to + 3, (field_bytes > 0 ? 0x20U : 0U) | (payload_bytes > 0 ? 0x10U : 0U) | *counter);
  if (field_bytes == 0) return;
  store_u8(to + 4, field_bytes - 1);
  if (field_bytes == 1) return;
  std::memset(to + 5, 0xFF, field_bytes - 1);
  store_u8(to + 5, has_pcr ? 0x10 : 0);
  if (!has_pcr) return;
  const uint64_t pcr = pcr_of(packet_count_);
  const uint64_t base = pcr / 300;
  store_u32(to + 6, base >> 1);
  store_u16(to + 10, (base & 1) << 15 | 0x7E00 | pcr % 300);
}

void TsGenerator::write_table(std::byte* to, bool is_pat) noexcept {
  write_head(to, is_pat ? kPatPid : kPmtPid, true, is_pat ? &pat_counter_ : &pmt_counter_,
             kTsPacketBytes - 4, false);
  std::byte* section = to + 5;
  std::memset(to + 4, 0xFF, kTsPacketBytes - 4);
  store_u8(to + 4, 0);  // pointer_field
  constexpr uint32_t kHead = 8;
  uint32_t bytes = kHead;
  store_u8(section, is_pat ? kPatTable : kPmtTable);
  store_u16(section + 3, 1);    // of the stream, or of its program
  store_u8(section + 5, 0xC1);  // version 0, current
  store_u16(section + 6, 0);    // section 0 of 0
  if (is_pat) {
    store_u16(section + bytes, 1);
    store_u16(section + bytes + 2, 0xE000U | kPmtPid);
    bytes += 4;
  } else {
    store_u16(section + bytes, 0xE000U | kVideoPid);  // the PCRs' PID
    store_u16(section + bytes + 2, 0xF000);
    store_u8(section + bytes + 4, 2);  // MPEG-2 video
    store_u16(section + bytes + 5, 0xE000U | kVideoPid);
    store_u16(section + bytes + 7, 0xF000);
    bytes += 9;
  }
  store_u16(section + 1, 0xB000U | (bytes + 4 - 3));
  store_u32(section + bytes, section_crc({section, bytes}));
}

void TsGenerator::begin_picture() noexcept {
  picture_ = encoder_.encode(picture_count_);
  const uint64_t shown =
      picture_count_ * (90'000 / TestPicture::kFramesPerSecond) + kPictureDelay90k;
  const std::byte* from = head_;
  std::byte* to = head_;
  const auto put = [&to](uint64_t value) { store_u8(to++, value); };
  for (const int byte : {0, 0, 1, 0xE0, 0, 0, 0x80, 0x80, 5}) put(static_cast<uint64_t>(byte));
  put(0x21 | (shown >> 30 & 7) << 1);
  put(shown >> 22);
  put((shown >> 14 & 0xFE) | 1);
  put(shown >> 7);
  put((shown << 1 & 0xFE) | 1);
  head_bytes_ = static_cast<uint32_t>(to - from);
  head_done_ = 0;
  ++picture_count_;
}

void TsGenerator::write_video(std::byte* to, bool has_pcr) noexcept {
  const size_t left = head_bytes_ - head_done_ + picture_.size();
  const uint32_t room = kTsPacketBytes - 4 - (has_pcr ? kPcrFieldBytes : 0);
  const auto bytes = static_cast<uint32_t>(std::min<size_t>(left, room));
  write_head(to, kVideoPid, head_done_ == 0, &video_counter_, bytes, has_pcr);
  std::byte* at = to + kTsPacketBytes - bytes;
  const uint32_t of_head = std::min(bytes, head_bytes_ - head_done_);
  std::memcpy(at, head_ + head_done_, of_head);
  head_done_ += of_head;
  std::memcpy(at + of_head, picture_.data(), bytes - of_head);
  picture_ = picture_.subspan(bytes - of_head);
}

void TsGenerator::next(std::byte* to) noexcept {
  const bool has_pcr = packet_count_ >= next_pcr_;
  if (!has_pcr && (packet_count_ >= next_table_ || is_pmt_next_)) {
    write_table(to, !is_pmt_next_);
    if (!is_pmt_next_) next_table_ += packets_in(kTablesPerSecond);
    is_pmt_next_ = !is_pmt_next_;
  } else {
    const uint64_t picture_ns = kNsPerSecond / TestPicture::kFramesPerSecond;
    if (picture_.empty() && ns_of(packet_count_) >= picture_count_ * picture_ns) begin_picture();
    if (!picture_.empty()) {
      write_video(to, has_pcr);
    } else if (has_pcr) {
      write_head(to, kVideoPid, false, &video_counter_, 0, true);
    } else {
      uint8_t counter = 0;
      write_head(to, kNullPid, false, &counter, kTsPacketBytes - 4, false);
      std::memset(to + 4, 0xFF, kTsPacketBytes - 4);
      store_u32(to + 4, packet_count_ >> 32);
      store_u32(to + 8, packet_count_);
    }
    if (has_pcr) next_pcr_ += packets_in(kPcrsPerSecond);
  }
  ++packet_count_;
}

}  // namespace bedplate::relay
