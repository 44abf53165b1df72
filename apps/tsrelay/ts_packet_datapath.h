// A packet of an MPEG-2 transport stream (ISO/IEC 13818-1, 2.4.3), 188 bytes: parses its header and
// the PCR in its adaptation field.
#pragma once

#include <span>

#include "apps/tsrelay/network_bytes_datapath.h"

namespace bedplate::relay {

inline constexpr uint32_t kTsPacketBytes = 188;
inline constexpr uint8_t kTsSync = 0x47;
inline constexpr uint16_t kPatPid = 0;
inline constexpr uint16_t kNullPid = 0x1FFF;
inline constexpr uint32_t kPidCount = 8192;
inline constexpr uint64_t kPcrHz = 27'000'000;
inline constexpr uint32_t kPcrExtensions = 300;  // the extension counts from 0 to 299
inline constexpr uint64_t kPcrModulus =
    (uint64_t{1} << 33) * kPcrExtensions;  // a PCR wraps around here

// Whether `bytes` are whole packets, each with its sync byte.
inline bool are_ts_packets(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty() || bytes.size() % kTsPacketBytes != 0) return false;
  for (size_t at = 0; at < bytes.size(); at += kTsPacketBytes) {
    if (load_u8(bytes.data() + at) != kTsSync) return false;
  }
  return true;
}

struct TsPacket {
  uint16_t pid = 0;
  bool has_error = false;  // transport_error_indicator
  bool begins_unit = false;
  bool is_scrambled = false;
  bool has_payload = false;
  bool has_adaptation = false;
  uint8_t counter = 0;  // continuity_counter
  uint8_t payload_offset = 0;
  bool is_discontinuous = false;  // discontinuity_indicator
  bool has_pcr = false;
  uint64_t pcr = 0;  // in ticks of kPcrHz
};

// Parses a packet. Requires: `bytes` has kTsPacketBytes. Returns false if it is malformed: it has
// no sync byte, or its adaptation field does not fit into it, or is too short for its PCR. Ignores
// a PCR whose extension is over 299, so each PCR is below kPcrModulus.
constexpr bool parse_ts(const std::byte* bytes, TsPacket* packet) noexcept {
  if (load_u8(bytes) != kTsSync) return false;
  const uint16_t second = load_u16(bytes + 1);
  const uint8_t fourth = load_u8(bytes + 3);
  packet->has_error = (second & 0x8000) != 0;
  packet->begins_unit = (second & 0x4000) != 0;
  packet->pid = second & 0x1FFF;
  packet->is_scrambled = (fourth & 0xC0) != 0;
  packet->has_adaptation = (fourth & 0x20) != 0;
  packet->has_payload = (fourth & 0x10) != 0;
  packet->counter = fourth & 0x0F;
  packet->is_discontinuous = packet->has_pcr = false;
  packet->pcr = 0;
  packet->payload_offset = 4;
  if (!packet->has_adaptation) return true;
  const uint8_t length = load_u8(bytes + 4);
  // An adaptation field of 183 bytes fills the packet and leaves no payload.
  if (length > (packet->has_payload ? 182 : 183)) return false;
  packet->payload_offset = static_cast<uint8_t>(5 + length);
  if (length == 0) return true;
  const uint8_t flags = load_u8(bytes + 5);
  packet->is_discontinuous = (flags & 0x80) != 0;
  if ((flags & 0x10) == 0) return true;
  if (length < 7) return false;
  const uint64_t base = uint64_t{load_u32(bytes + 6)} << 1 | load_u8(bytes + 10) >> 7;
  const uint16_t extension = load_u16(bytes + 10) & 0x1FF;
  if (extension >= kPcrExtensions) return true;
  packet->has_pcr = true;
  packet->pcr = base * kPcrExtensions + extension;
  return true;
}

// The distance from `from` to `to`, below kPcrModulus. Requires: so are both.
constexpr uint64_t pcr_distance(uint64_t from, uint64_t to) noexcept {
  return to >= from ? to - from : to + kPcrModulus - from;
}

// Converts ticks of kPcrHz to nanoseconds. Requires: below 2^54 ticks, which are 21 years.
constexpr uint64_t pcr_ns(uint64_t ticks) noexcept {
  return ticks / 27 * 1000 + ticks % 27 * 1000 / 27;
}

}  // namespace bedplate::relay
