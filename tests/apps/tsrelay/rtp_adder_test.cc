// RTP headers that the relay adds, read back by its parser.
#include "apps/tsrelay/rtp_adder_datapath.h"

#include <algorithm>
#include <span>
#include <vector>

#include "CppUTest/TestHarness.h"

using namespace bedplate::relay;

namespace {
constexpr uint32_t kPayloadBytes = 7 * 188;
constexpr uint64_t kMs = 1'000'000;
}  // namespace

TEST_GROUP(RtpAdder) {
  RtpAdder adder;
  std::vector<std::byte> buffer = std::vector<std::byte>(kRtpHeadroomBytes + kPayloadBytes);

  RtpPacket add(uint64_t leaves_ns) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0x47});
    const RtpPacket said = adder.add(buffer.data() + kRtpHeadroomBytes, kPayloadBytes, leaves_ns);
    RtpPacket read;
    const auto datagram = std::span(buffer).subspan(kRtpHeadroomBytes - kRtpHeaderBytes);
    CHECK(parse_rtp(datagram, &read) == RtpFault::kNone);
    LONGS_EQUAL(kRtpHeaderBytes, read.header_bytes);
    LONGS_EQUAL(kPayloadBytes, read.payload_bytes);
    LONGS_EQUAL(kRtpTransportStream, read.payload_type);
    CHECK(!read.has_marker && !read.has_padding && !read.has_extension);
    CHECK(read.sequence == said.sequence && read.timestamp == said.timestamp);
    // Nothing else is written.
    const auto is_untouched = [](std::byte byte) { return byte == std::byte{0x47}; };
    const auto header = buffer.begin() + kRtpHeadroomBytes - kRtpHeaderBytes;
    CHECK(std::all_of(buffer.begin(), header, is_untouched));
    CHECK(std::all_of(header + kRtpHeaderBytes, buffer.end(), is_untouched));
    return read;
  }
};

TEST(RtpAdder, NumbersGoUpByOneAndAround) {
  adder.create({.ssrc = 0x11223344, .sequence = 65533});
  for (uint32_t i = 0; i < 10; ++i) {
    const RtpPacket packet = add(i);
    LONGS_EQUAL((65533 + i) & 0xFFFF, packet.sequence);
    LONGS_EQUAL(0x11223344, packet.ssrc);
  }
}

TEST(RtpAdder, TimestampsAreOf90KilohertzAndGoAround) {
  adder.create({.timestamp = 0xFFFFFFF0});
  uint32_t before = add(5'000'000 * kMs).timestamp;
  for (uint32_t i = 1; i < 2000; ++i) {
    const uint32_t after = add(5'000'000 * kMs + i * 1000 * kMs).timestamp;
    LONGS_EQUAL(90'000, after - before);
    before = after;
  }
  // Exact to the tick of 11.1 us.
  const uint32_t first = add(8'000'000 * kMs).timestamp;
  LONGS_EQUAL(0, add(8'000'000 * kMs + 11'000).timestamp - first);
  LONGS_EQUAL(1, add(8'000'000 * kMs + 11'200).timestamp - first);
  LONGS_EQUAL(9, add(8'000'000 * kMs + 100'000).timestamp - first);
}

TEST(RtpAdder, ATimestampNeverGoesBack) {
  adder.create({});
  const uint32_t first = add(1000 * kMs).timestamp;
  LONGS_EQUAL(first, add(900 * kMs).timestamp);
  LONGS_EQUAL(90, add(1001 * kMs).timestamp - first);
}
