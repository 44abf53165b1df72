// Adds RTP to packets that came without it. It writes the header into the headroom of the receive
// buffer, directly before the packet, so nothing is copied and the packet leaves as one datagram.
//
// Numbers go up by one with each packet: packets without RTP do not show losses before this point.
// The timestamp is the time at which the packet is to leave (RFC 2250, section 2): its arrival or,
// if the stream is paced, its due time. It never goes back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "apps/tsrelay/rtp_datapath.h"
#include "platform/assert.h"

namespace bedplate::relay {

// The headroom of a leg's buffers if RTP is added: a cache line; the header is at its end.
inline constexpr uint32_t kRtpHeadroomBytes = 64;
static_assert(kRtpHeadroomBytes >= kRtpHeaderBytes);

class RtpAdder {
 public:
  // The SSRC, the first number, and the offset of the timestamps from rtp_clock(). The caller draws
  // them at random (RFC 3550, 5.1).
  struct Beginning {
    uint32_t ssrc = 0;
    uint16_t sequence = 0;
    uint32_t timestamp = 0;
  };

  void create(const Beginning& beginning) noexcept {
    beginning_ = beginning;
    sequence_ = beginning.sequence;
  }
  // Writes the header of the next packet to the bytes before `payload`. `leaves_ns`: in monotonic
  // time. Returns the header's fields. Requires: there is headroom, and payload_bytes is over 0.
  RtpPacket add(std::byte* payload, uint32_t payload_bytes, uint64_t leaves_ns) noexcept {
    BP_DCHECK(payload != nullptr && payload_bytes > 0);
    last_ns_ = std::max(last_ns_, leaves_ns);
    RtpPacket packet;
    packet.sequence = sequence_++;
    packet.timestamp = beginning_.timestamp + rtp_clock(last_ns_);
    packet.ssrc = beginning_.ssrc;
    packet.payload_type = kRtpTransportStream;
    packet.header_bytes = kRtpHeaderBytes;
    packet.payload_bytes = payload_bytes;
    write_rtp(packet, payload - kRtpHeaderBytes);
    return packet;
  }

 private:
  Beginning beginning_;
  uint16_t sequence_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace bedplate::relay
