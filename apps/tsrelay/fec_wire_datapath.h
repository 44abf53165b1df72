// The layout of FEC packets of SMPTE ST 2022-1 (Pro-MPEG CoP 3), and their XOR sums.
//
//     0   RTP header, 12 bytes; padding, extension, CC and marker are the sums of the media's
//     12  SNBase, 2      the first packet of the set
//     14  length, 2      the sum of the lengths after the RTP header
//     16  E and type, 1  E is 1; type is the sum of the payload types
//     17  mask, 3        0
//     20  timestamp, 4   the sum
//     24  N D type index, 1: D is 1 for a row, the others are 0: the sum is exclusive or
//     25  offset, 1      step from one packet of the set to the next: L for a column, 1 for a row
//     26  NA, 1          the number of packets: D for a column, L for a row
//     27  SNBase ext, 1  0
//     28  the sum of the bytes after the RTP headers
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "apps/tsrelay/network_bytes_datapath.h"
#include "apps/tsrelay/rtp_datapath.h"

namespace bedplate::relay {

inline constexpr uint32_t kFecHeaderBytes = 16;
inline constexpr uint32_t kFecHeadersBytes = kRtpHeaderBytes + kFecHeaderBytes;
inline constexpr uint8_t kFecPayloadType = 96;
inline constexpr uint8_t kFecFlags = 0x3F;  // all of RTP's first byte but the version
// The ports of FEC, relative to the media's.
inline constexpr uint16_t kFecColumnPort = 2;
inline constexpr uint16_t kFecRowPort = 4;
// The limits of the matrix (ST 2022-1, 8.1). They apply with row packets and without.
inline constexpr uint32_t kFecColumnsMax = 20;
inline constexpr uint32_t kFecRowsMax = 20;
inline constexpr uint32_t kFecMatrixMax = 100;

struct FecPacket {
  uint16_t base = 0;
  uint16_t length_sum = 0;
  uint8_t type_sum = 0;
  uint32_t timestamp_sum = 0;
  uint8_t flags_sum = 0;   // padding, extension and CC, as in the first byte of RTP
  uint8_t marker_sum = 0;  // the marker, as in the second byte
  bool is_row = false;
  uint8_t offset = 0;
  uint8_t count = 0;
  std::span<const std::byte> sum;

  // Returns the index of `sequence` in the set, or `count` if it is not in the set.
  uint32_t index_of(uint16_t sequence) const noexcept {
    const auto distance = static_cast<uint16_t>(sequence - base);
    return distance % offset == 0 ? std::min<uint32_t>(distance / offset, count) : count;
  }
  uint16_t sequence_at(uint32_t index) const noexcept {
    return static_cast<uint16_t>(base + index * offset);
  }
};

// Returns false if it is not an FEC packet of this kind, or its matrix is too large.
inline bool parse_fec(std::span<const std::byte> datagram, FecPacket* packet) noexcept {
  if (datagram.size() < kFecHeadersBytes) return false;
  const std::byte* bytes = datagram.data();
  if (load_u8(bytes) >> 6 != 2) return false;
  packet->flags_sum = load_u8(bytes) & kFecFlags;
  packet->marker_sum = load_u8(bytes + 1) & 0x80;
  packet->base = load_u16(bytes + 12);
  packet->length_sum = load_u16(bytes + 14);
  packet->type_sum = load_u8(bytes + 16) & 0x7F;
  packet->timestamp_sum = load_u32(bytes + 20);
  const uint8_t kind = load_u8(bytes + 24);
  packet->is_row = (kind & 0x40) != 0;
  packet->offset = load_u8(bytes + 25);
  packet->count = load_u8(bytes + 26);
  packet->sum = datagram.subspan(kFecHeadersBytes);
  if ((load_u8(bytes + 16) & 0x80) == 0 || load_u24(bytes + 17) != 0 || (kind & 0x3F) != 0) {
    return false;
  }
  if (packet->count == 0 || packet->offset == 0 || load_u8(bytes + 27) != 0) return false;
  if (packet->is_row) return packet->offset == 1 && packet->count <= kFecColumnsMax;
  return packet->offset <= kFecColumnsMax && packet->count <= kFecRowsMax &&
         packet->offset * packet->count <= kFecMatrixMax;
}

// Adds `bytes` of `from` to `to`, by exclusive or.
inline void add_sum(std::byte* to, const std::byte* from, size_t bytes) noexcept {
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    uint64_t one;
    uint64_t other;
    std::memcpy(&one, to + i, sizeof one);
    std::memcpy(&other, from + i, sizeof other);
    one ^= other;
    std::memcpy(to + i, &one, sizeof one);
  }
  for (; i < bytes; ++i) to[i] ^= from[i];
}

}  // namespace bedplate::relay
