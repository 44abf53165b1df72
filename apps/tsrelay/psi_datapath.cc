#include "apps/tsrelay/psi_datapath.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "apps/tsrelay/network_bytes_datapath.h"
#include "platform/assert.h"

namespace bedplate::relay {
namespace {

constexpr uint32_t kLengthBytes = 3;  // of a section up to the end of section_length
constexpr uint32_t kHeadBytes = 8;
constexpr uint32_t kCrcBytes = 4;

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
  head->is_current = (load_u8(section.data() + 5) & 1) != 0;
  BP_DCHECK(section.size() <= kSectionBytesMax);
  head->body = section.subspan(kHeadBytes, section.size() - kHeadBytes - kCrcBytes);
  return true;
}

}  // namespace bedplate::relay
