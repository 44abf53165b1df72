#include "apps/tsrelay/rtp_datapath.h"

#include "apps/tsrelay/network_bytes_datapath.h"
#include "platform/assert.h"
#include "platform/units.h"

namespace bedplate::relay {
namespace {

constexpr uint8_t kVersion = 2;
constexpr uint32_t kCsrcBytes = 4;
constexpr uint32_t kExtensionHeadBytes = 4;

}  // namespace

RtpFault parse_rtp(std::span<const std::byte> datagram, RtpPacket* packet) noexcept {
  if (datagram.size() < kRtpHeaderBytes) return RtpFault::kShort;
  const std::byte* bytes = datagram.data();
  const uint8_t first = load_u8(bytes);
  if (first >> 6 != kVersion) return RtpFault::kVersion;
  const uint8_t second = load_u8(bytes + 1);
  packet->has_padding = (first & 0x20) != 0;
  packet->has_extension = (first & 0x10) != 0;
  packet->csrc_count = first & 0x0F;
  packet->has_marker = (second & 0x80) != 0;
  packet->payload_type = second & 0x7F;
  packet->sequence = load_u16(bytes + 2);
  packet->timestamp = load_u32(bytes + 4);
  packet->ssrc = load_u32(bytes + 8);
  packet->header_bytes = packet->payload_bytes = 0;

  uint64_t header_bytes = kRtpHeaderBytes + packet->csrc_count * kCsrcBytes;
  if (header_bytes > datagram.size()) return RtpFault::kCsrc;
  if (packet->has_extension) {
    if (header_bytes + kExtensionHeadBytes > datagram.size()) return RtpFault::kExtension;
    header_bytes += kExtensionHeadBytes + 4U * load_u16(bytes + header_bytes + 2);
    if (header_bytes > datagram.size()) return RtpFault::kExtension;
  }
  uint64_t payload_bytes = datagram.size() - header_bytes;
  if (packet->has_padding) {
    const uint8_t padding_bytes = load_u8(bytes + datagram.size() - 1);
    if (padding_bytes == 0 || padding_bytes > payload_bytes) return RtpFault::kPadding;
    payload_bytes -= padding_bytes;
  }
  BP_DCHECK(header_bytes + payload_bytes <= datagram.size());
  packet->header_bytes = static_cast<uint32_t>(header_bytes);
  packet->payload_bytes = static_cast<uint32_t>(payload_bytes);
  return RtpFault::kNone;
}

void write_rtp(const RtpPacket& packet, std::byte* to) noexcept {
  store_u8(to, uint64_t{kVersion} << 6 | uint64_t{packet.has_padding} << 5 |
                   uint64_t{packet.has_extension} << 4 | (packet.csrc_count & 0x0F));
  store_u8(to + 1, uint64_t{packet.has_marker} << 7 | (packet.payload_type & 0x7F));
  store_u16(to + 2, packet.sequence);
  store_u32(to + 4, packet.timestamp);
  store_u32(to + 8, packet.ssrc);
}

bool may_bear_transport(uint8_t payload_type) noexcept {
  constexpr uint8_t kFirstDynamic = 96;
  return payload_type == kRtpTransportStream || payload_type >= kFirstDynamic;
}

void JitterMeter::add(uint32_t timestamp, uint64_t arrival_ns) noexcept {
  const uint32_t transit = rtp_clock(arrival_ns) - timestamp;
  if (is_running_) {
    const auto difference = static_cast<int32_t>(transit - last_transit_);
    const uint64_t amount = difference < 0 ? -static_cast<int64_t>(difference) : difference;
    // A second or more is not jitter: a clock was set, or the sender has restarted its timestamps.
    if (amount < kRtpClockHz) scaled_ += amount - ((scaled_ + 8) >> 4);
    BP_DCHECK(scaled_ <= 16 * uint64_t{kRtpClockHz} && "an average is no more than its largest");
  } else {
    scaled_ = 0;
  }
  is_running_ = true;
  last_transit_ = transit;
}

uint64_t JitterMeter::jitter_ns() const noexcept {
  return (scaled_ >> 4) * (kNsPerSecond / 1000) / (kRtpClockHz / 1000);
}

}  // namespace bedplate::relay
