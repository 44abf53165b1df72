// RTP (RFC 3550): parses and writes packet headers, and measures the jitter of arrivals.
//
// The bytes are untrusted: each length is checked against the datagram before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bedplate::relay {

inline constexpr uint32_t kRtpHeaderBytes = 12;     // without CSRCs and extension
inline constexpr uint32_t kRtpClockHz = 90'000;     // of transport streams (RFC 3551, type 33)
inline constexpr uint8_t kRtpTransportStream = 33;  // payload type

struct RtpPacket {
  uint16_t sequence = 0;
  uint32_t timestamp = 0;
  uint32_t ssrc = 0;
  uint8_t payload_type = 0;
  bool has_marker = false;
  bool has_padding = false;
  bool has_extension = false;
  uint8_t csrc_count = 0;
  uint32_t header_bytes = 0;   // with CSRCs and extension: the payload begins here
  uint32_t payload_bytes = 0;  // without padding
};

enum class RtpFault : uint8_t {
  kNone,
  kShort,      // no whole header
  kVersion,    // not 2
  kCsrc,       // more CSRCs than there are bytes
  kExtension,  // a longer extension than there are bytes
  kPadding,    // more padding than payload, or a padding count of 0
};

// Fills *packet from the first kRtpHeaderBytes, unless it returns kShort or kVersion. Sets the
// lengths of header and payload if there is no fault; after any other fault they are 0.
RtpFault parse_rtp(std::span<const std::byte> datagram, RtpPacket* packet) noexcept;

// Whether a payload of this type may be a transport stream: 33, or a dynamic type, which both ends
// agree on (96 to 127). All other types belong to other media (RFC 3551, section 6).
bool may_bear_transport(uint8_t payload_type) noexcept;

// Writes the first kRtpHeaderBytes of a packet with these fields.
void write_rtp(const RtpPacket& packet, std::byte* to) noexcept;

// The distance from `from` to `to`: negative if `to` is older. Sequence numbers wrap around.
constexpr int32_t sequence_distance(uint16_t from, uint16_t to) noexcept {
  return static_cast<int16_t>(static_cast<uint16_t>(to - from));
}

// The value of the RTP clock at a time. Avoids overflow: 9 ticks are 100 us. It wraps around.
constexpr uint32_t rtp_clock(uint64_t ns) noexcept {
  return static_cast<uint32_t>(ns / 100'000 * 9 + ns % 100'000 * 9 / 100'000);
}

// Interarrival jitter, RFC 3550 section 6.4.1 and appendix A.8.
class JitterMeter {
 public:
  // `arrival_ns`: by any one clock. Ignores a jump of a second or more.
  void add(uint32_t timestamp, uint64_t arrival_ns) noexcept;
  // Forgets earlier packets: they belong to another stream or another clock.
  void restart() noexcept { is_running_ = false; }
  uint64_t jitter_ns() const noexcept;

 private:
  bool is_running_ = false;
  uint32_t last_transit_ = 0;  // in units of the RTP clock; wraps around
  uint64_t scaled_ = 0;        // the jitter in sixteenths of that unit
};

}  // namespace bedplate::relay
