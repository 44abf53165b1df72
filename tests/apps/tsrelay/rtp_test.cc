// RTP headers: their fields, datagrams too short for their headers, and the jitter.
#include "apps/tsrelay/rtp_datapath.h"

#include <vector>

#include "apps/tsrelay/network_bytes_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate::relay;

namespace {

// Returns a datagram with `rest_bytes` behind a header.
std::vector<std::byte> datagram(const RtpPacket& packet, size_t rest_bytes) {
  std::vector<std::byte> bytes(kRtpHeaderBytes + rest_bytes);
  write_rtp(packet, bytes.data());
  return bytes;
}

}  // namespace

TEST_GROUP(Rtp){};

TEST(Rtp, NumbersAreBigEndian) {
  std::byte bytes[4];
  store_u32(bytes, 0x01020304);
  LONGS_EQUAL(1, load_u8(bytes));
  LONGS_EQUAL(0x0304, load_u16(bytes + 2));
  LONGS_EQUAL(0x020304, load_u24(bytes + 1));
  LONGS_EQUAL(0x01020304, load_u32(bytes));
  store_u24(bytes, 0xAABBCC);
  LONGS_EQUAL(0xAABBCC, load_u24(bytes));
}

TEST(Rtp, WhatIsWrittenIsRead) {
  RtpPacket out;
  out.sequence = 65535;
  out.timestamp = 0x89ABCDEF;
  out.ssrc = 0xFEDCBA98;
  out.payload_type = kRtpTransportStream;
  out.has_marker = true;
  const auto bytes = datagram(out, 188);
  RtpPacket in;
  CHECK(parse_rtp(bytes, &in) == RtpFault::kNone);
  LONGS_EQUAL(65535, in.sequence);
  UNSIGNED_LONGS_EQUAL(0x89ABCDEF, in.timestamp);
  UNSIGNED_LONGS_EQUAL(0xFEDCBA98, in.ssrc);
  LONGS_EQUAL(33, in.payload_type);
  CHECK(in.has_marker);
  LONGS_EQUAL(12, in.header_bytes);
  LONGS_EQUAL(188, in.payload_bytes);
}

TEST(Rtp, CsrcsExtensionAndPaddingAreNoPayload) {
  RtpPacket out;
  out.csrc_count = 2;
  out.has_extension = true;
  out.has_padding = true;
  auto bytes = datagram(out, 8 + 4 + 8 + 10);
  store_u16(bytes.data() + 12 + 8 + 2, 2);  // two words of extension
  store_u8(bytes.data() + bytes.size() - 1, 3);
  RtpPacket in;
  CHECK(parse_rtp(bytes, &in) == RtpFault::kNone);
  LONGS_EQUAL(12 + 8 + 4 + 8, in.header_bytes);
  LONGS_EQUAL(7, in.payload_bytes);
}

TEST(Rtp, TooShortForWhatItSays) {
  RtpPacket in;
  auto bytes = datagram({}, 0);
  CHECK(parse_rtp(std::span(bytes).first(11), &in) == RtpFault::kShort);
  CHECK(parse_rtp({}, &in) == RtpFault::kShort);
  CHECK(parse_rtp(bytes, &in) == RtpFault::kNone);
  store_u8(bytes.data(), 0x40);
  CHECK(parse_rtp(bytes, &in) == RtpFault::kVersion);

  RtpPacket out;
  out.csrc_count = 3;
  CHECK(parse_rtp(datagram(out, 11), &in) == RtpFault::kCsrc);
  CHECK(parse_rtp(datagram(out, 12), &in) == RtpFault::kNone);
  out.has_extension = true;
  CHECK(parse_rtp(datagram(out, 15), &in) == RtpFault::kExtension);
  bytes = datagram(out, 12 + 4 + 7);
  store_u16(bytes.data() + 12 + 12 + 2, 2);
  CHECK(parse_rtp(bytes, &in) == RtpFault::kExtension);
  store_u16(bytes.data() + 12 + 12 + 2, 0xFFFF);
  CHECK(parse_rtp(bytes, &in) == RtpFault::kExtension);

  RtpPacket padded;
  padded.has_padding = true;
  bytes = datagram(padded, 5);
  CHECK(parse_rtp(bytes, &in) == RtpFault::kPadding);  // a padding of 0
  store_u8(&bytes.back(), 6);
  CHECK(parse_rtp(bytes, &in) == RtpFault::kPadding);
  store_u8(&bytes.back(), 5);
  CHECK(parse_rtp(bytes, &in) == RtpFault::kNone);
  LONGS_EQUAL(0, in.payload_bytes);
}

TEST(Rtp, DistancesWrapAround) {
  LONGS_EQUAL(1, sequence_distance(65535, 0));
  LONGS_EQUAL(-1, sequence_distance(0, 65535));
  LONGS_EQUAL(-32768, sequence_distance(0, 32768));
  LONGS_EQUAL(32767, sequence_distance(1, 32768));
}

TEST(Rtp, JitterIsThatOfTheStandard) {
  JitterMeter meter;
  // Packets on time have no jitter.
  for (uint32_t i = 0; i < 100; ++i) meter.add(i * 90, uint64_t{i} * 1'000'000);
  LONGS_EQUAL(0, meter.jitter_ns());
  // Every second packet is 2 ms late: the differences are 180 units, which J approaches by
  // sixteenths.
  double expected = 0;
  for (uint32_t i = 100; i < 1000; ++i) {
    meter.add(i * 90, uint64_t{i} * 1'000'000 + (i % 2) * 2'000'000);
    if (i > 100) expected += (180 - expected) / 16;
  }
  DOUBLES_EQUAL(expected / 90e3 * 1e9, static_cast<double>(meter.jitter_ns()), 30e3);
  // A clock that jumps is no jitter.
  meter.add(90'000, 3'600'000'000'000);
  meter.add(90'090, 3'600'001'000'000);
  CHECK(meter.jitter_ns() < 2'000'000);
  meter.restart();
  meter.add(5, 0);
  LONGS_EQUAL(0, meter.jitter_ns());
}
