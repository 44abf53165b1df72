// Classifies a leg's datagram by its content.
//
//     RTP     version 2 in its first byte; it carries a transport stream if its payload type allows
//             one, and its payload is one
//     bare    a transport stream from its first byte on
//     neither
//
// A transport stream is a whole number of packets; more than half of them begin with the sync byte.
// A packet with a bad sync byte is a fault of the stream, which its inspector counts. A sync byte
// as RTP's first byte means version 1, so a bare stream looks like RTP only if its first sync byte
// is corrupt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "apps/tsrelay/rtp_datapath.h"
#include "apps/tsrelay/ts_packet_datapath.h"

namespace bedplate::relay {

// The formats that a leg accepts: kAuto both, kRtp only RTP, kUdp only bare streams.
enum class StreamFormat : uint8_t { kAuto, kRtp, kUdp };

enum class Content : uint8_t {
  kTransport,  // a transport stream, in RTP where the packet has a header
  kEmpty,      // RTP without payload: padding, or a keep-alive
  // Datagrams that are dropped, by cause.
  kTruncated,  // longer than its buffer
  // Neither RTP nor, for kAuto, a transport stream; or RTP whose lengths make no sense. Never for
  // kUdp.
  kNeither,
  kOtherType,  // RTP whose payload is of another type
  kNotWhole,   // not a whole number of packets
  kNoSync,     // a whole number of packets, but no sync bytes
};

struct DatagramContent {
  Content content = Content::kNeither;
  // It is RTP and has a number. A dropped packet uses its number up, too.
  bool has_number = false;
};

// Returns kTransport if the payload is a transport stream: whole packets, more than half of them
// with the sync byte. Otherwise returns kNotWhole (also for no bytes) or kNoSync.
inline Content content_of_payload(std::span<const std::byte> payload) noexcept {
  if (payload.empty() || payload.size() % kTsPacketBytes != 0) return Content::kNotWhole;
  size_t count = 0;
  for (size_t at = 0; at < payload.size(); at += kTsPacketBytes) {
    count += load_u8(payload.data() + at) == kTsSync ? 1 : 0;
  }
  return count * 2 > payload.size() / kTsPacketBytes ? Content::kTransport : Content::kNoSync;
}

// If the datagram has a number, *rtp has the fields of its RTP header; else rtp->header_bytes is 0.
inline DatagramContent content_of(std::span<const std::byte> datagram, bool is_truncated,
                                  StreamFormat format, RtpPacket* rtp) noexcept {
  *rtp = {};
  if (format == StreamFormat::kUdp) {
    return {is_truncated ? Content::kTruncated : content_of_payload(datagram), false};
  }
  const RtpFault fault = parse_rtp(datagram, rtp);
  const bool has_number = fault != RtpFault::kShort && fault != RtpFault::kVersion;
  if (is_truncated) return {Content::kTruncated, has_number};
  Content content = Content::kNeither;
  if (fault == RtpFault::kNone) {
    const auto payload = datagram.subspan(rtp->header_bytes, rtp->payload_bytes);
    content = payload.empty()                          ? Content::kEmpty
              : !may_bear_transport(rtp->payload_type) ? Content::kOtherType
                                                       : content_of_payload(payload);
  }
  // A corrupt first sync byte may read as RTP's version 2: the datagram may still be bare.
  const bool may_be_bare =
      format == StreamFormat::kAuto && content != Content::kTransport && content != Content::kEmpty;
  if (may_be_bare && content_of_payload(datagram) == Content::kTransport) {
    *rtp = {};
    return {Content::kTransport, false};
  }
  // The first byte is a sync byte, so the fault is reported as a transport stream's.
  const bool begins = !has_number && format == StreamFormat::kAuto && !datagram.empty() &&
                      load_u8(datagram.data()) == kTsSync;
  return {begins ? content_of_payload(datagram) : content, has_number};
}

}  // namespace bedplate::relay
