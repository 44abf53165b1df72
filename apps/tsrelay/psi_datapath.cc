#include "apps/tsrelay/psi_datapath.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "apps/tsrelay/network_bytes_datapath.h"
#include "platform/assert.h"

namespace bedplate::relay {
namespace {

constexpr uint32_t kLengthBytes = 3;  // of a section, up to and including section_length
constexpr uint32_t kHeadBytes = 8;
constexpr uint32_t kCrcBytes = 4;

// ISO/IEC 13818-1, table 2-34; in the user's range the types of ATSC, AVS, SMPTE and the BBC.
constexpr uint8_t kContinuousTypes[] = {
    0x01, 0x02, 0x10, 0x1B, 0x1F, 0x20, 0x21, 0x24, 0x25,  // video: MPEG-1, 2, 4, AVC, J2K, HEVC
    0x32, 0x33, 0x34, 0x35, 0x42, 0x80, 0xD1, 0xEA,        // JPEG XS, VVC, EVC, AVS, Dirac, VC-1
    0x03, 0x04, 0x0F, 0x11, 0x1C, 0x2D, 0x2E, 0x81, 0x87,  // audio: MPEG, AAC, MPEG-H, AC-3
};
// Private data is audio by these descriptors (ETSI EN 300 468): AC-3, enhanced AC-3, DTS, AAC.
constexpr uint8_t kPrivateData = 0x06;
constexpr uint8_t kAudioDescriptors[] = {0x6A, 0x7A, 0x7B, 0x7C};
constexpr uint8_t kLanguageDescriptor = 0x0A;
constexpr uint32_t kLanguageBytes = 4;  // a code of three letters, audio_type

constexpr auto kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i << 24;
    for (int bit = 0; bit < 8; ++bit) value = value << 1 ^ (value >> 31 != 0 ? 0x04C11DB7U : 0);
    table[i] = value;
  }
  return table;
}();

}  // namespace

uint32_t section_crc(std::span<const std::byte> bytes) noexcept {
  uint32_t crc = ~uint32_t{0};
  for (const std::byte byte : bytes) crc = crc << 8 ^ kCrcTable[crc >> 24 ^ load_u8(&byte)];
  return crc;
}

bool SectionReader::take(std::span<const std::byte>* payload) noexcept {
  BP_DCHECK(is_open_);
  const auto move = [&](uint32_t wanted_bytes) {
    BP_DCHECK(bytes_ <= wanted_bytes && wanted_bytes <= kSectionBytesMax);
    const auto bytes = std::min<size_t>(payload->size(), wanted_bytes - bytes_);
    std::memcpy(section_ + bytes_, payload->data(), bytes);
    *payload = payload->subspan(bytes);
    bytes_ = static_cast<uint16_t>(bytes_ + bytes);
    return bytes_ == wanted_bytes;
  };
  if (bytes_ < kLengthBytes && !move(kLengthBytes)) return false;
  const uint32_t whole_bytes = kLengthBytes + (load_u16(section_ + 1) & 0xFFFU);
  if (whole_bytes > kSectionBytesMax) {
    is_open_ = false;
    return false;
  }
  return move(whole_bytes);
}

bool parse_section(std::span<const std::byte> section, SectionHead* head,
                   bool* is_broken) noexcept {
  *is_broken = false;
  if (section.size() < kHeadBytes + kCrcBytes) return false;
  constexpr uint8_t kLongSyntax = 0x80;
  if ((load_u8(section.data() + 1) & kLongSyntax) == 0) return false;
  *is_broken = section_crc(section) != 0;
  if (*is_broken) return false;
  head->table = load_u8(section.data());
  head->number = load_u16(section.data() + 3);
  head->version = load_u8(section.data() + 5) >> 1 & 0x1F;
  head->is_current = (load_u8(section.data() + 5) & 1) != 0;
  head->section = load_u8(section.data() + 6);
  head->last_section = load_u8(section.data() + 7);
  head->crc = load_u32(section.data() + section.size() - kCrcBytes);
  BP_DCHECK(section.size() <= kSectionBytesMax);
  head->body = section.subspan(kHeadBytes, section.size() - kHeadBytes - kCrcBytes);
  return true;
}

bool is_continuous(uint8_t type, std::span<const std::byte> descriptors) noexcept {
  bool is_it = std::ranges::find(kContinuousTypes, type) != std::end(kContinuousTypes);
  while (descriptors.size() >= 2) {
    const uint8_t tag = load_u8(descriptors.data());
    const size_t bytes = load_u8(descriptors.data() + 1);
    descriptors = descriptors.subspan(2);
    if (bytes > descriptors.size()) break;
    if (type == kPrivateData &&
        std::ranges::find(kAudioDescriptors, tag) != std::end(kAudioDescriptors)) {
      is_it = true;
    }
    // Audio for the hearing impaired, commentary and clean effects may be silent.
    if (tag == kLanguageDescriptor && bytes >= kLanguageBytes &&
        load_u8(descriptors.data() + kLanguageBytes - 1) != 0) {
      return false;
    }
    descriptors = descriptors.subspan(bytes);
  }
  return is_it;
}

}  // namespace bedplate::relay
