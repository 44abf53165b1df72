// The content of a datagram decides its kind, not its length.
#include "apps/tsrelay/datagram_content_datapath.h"

#include <vector>

#include "tests/apps/tsrelay/dice.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

std::vector<std::byte> transport(size_t packets) {
  std::vector<std::byte> all(packets * kTsPacketBytes, std::byte{0xAA});
  for (size_t i = 0; i < packets; ++i) all[i * kTsPacketBytes] = std::byte{kTsSync};
  return all;
}

std::vector<std::byte> rtp(const RtpPacket& head, const std::vector<std::byte>& rest) {
  std::vector<std::byte> all(kRtpHeaderBytes);
  write_rtp(head, all.data());
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

}  // namespace

TEST_GROUP(DatagramContent) {
  RtpPacket head;

  Content of(const std::vector<std::byte>& bytes, bool has_number,
             StreamFormat format = StreamFormat::kAuto) {
    const DatagramContent its = content_of(bytes, false, format, &head);
    CHECK_EQUAL(has_number, its.has_number);
    if (its.content == Content::kTransport) CHECK_EQUAL(has_number, head.header_bytes != 0);
    return its.content;
  }
};

TEST(DatagramContent, TransportStreamsBareAndInRtp) {
  for (size_t packets = 1; packets < 8; ++packets) {
    CHECK(of(transport(packets), false) == Content::kTransport);
    CHECK(of(transport(packets), false, StreamFormat::kUdp) == Content::kTransport);
    CHECK(of(transport(packets), false, StreamFormat::kRtp) == Content::kNeither);
    for (const uint8_t type : {uint8_t{33}, uint8_t{96}, uint8_t{127}}) {
      const auto in_rtp = rtp({.payload_type = type}, transport(packets));
      CHECK(of(in_rtp, true) == Content::kTransport);
      CHECK(of(in_rtp, true, StreamFormat::kRtp) == Content::kTransport);
      LONGS_EQUAL(packets * kTsPacketBytes, head.payload_bytes);
      CHECK(of(in_rtp, false, StreamFormat::kUdp) == Content::kNotWhole);
    }
  }
}

TEST(DatagramContent, RtpOfALengthThatIsAMultipleOf188) {
  // A header of 188 bytes, most of which are an extension.
  std::vector<std::byte> rest(176, std::byte{0});
  store_u16(rest.data() + 2, 43);
  const auto stream = transport(6);
  rest.insert(rest.end(), stream.begin(), stream.end());
  const auto long_header = rtp({.payload_type = 33, .has_extension = true}, rest);
  LONGS_EQUAL(7 * kTsPacketBytes, long_header.size());
  CHECK(of(long_header, true) == Content::kTransport);
  LONGS_EQUAL(188, head.header_bytes);
  // 47 ms of G.711; G.711 in a datagram of 376 bytes; H.264 with a dynamic type, twice.
  CHECK(of(rtp({.payload_type = 8}, std::vector<std::byte>(376, std::byte{0xD5})), true) ==
        Content::kOtherType);
  CHECK(of(rtp({.payload_type = 8}, std::vector<std::byte>(364, std::byte{0xD5})), true) ==
        Content::kOtherType);
  CHECK(of(rtp({.payload_type = 96}, std::vector<std::byte>(1316, std::byte{0x65})), true) ==
        Content::kNoSync);
  CHECK(of(rtp({.payload_type = 96}, std::vector<std::byte>(1304, std::byte{0x65})), true) ==
        Content::kNotWhole);
  // The payload is a transport stream, but the type is for another format.
  CHECK(of(rtp({.payload_type = 14}, transport(7)), true) == Content::kOtherType);
}

TEST(DatagramContent, ASyncByteThatIsLostIsTheStreamsBusiness) {
  for (const uint32_t other : {0x46U, 0x80U, 0x90U, 0xBFU, 0x00U}) {
    for (size_t packet = 0; packet < 7; ++packet) {
      auto bare = transport(7);
      bare[packet * kTsPacketBytes] = std::byte(other);
      CHECK(of(bare, false) == Content::kTransport);
      CHECK(of(rtp({.payload_type = 33}, bare), true) == Content::kTransport);
    }
  }
  auto half = transport(4);
  half[0] = half[kTsPacketBytes] = std::byte{0};
  CHECK(of(half, false, StreamFormat::kUdp) == Content::kNoSync);
}

TEST(DatagramContent, WhatIsEmptyOrBrokenHasItsNumber) {
  CHECK(of(rtp({}, {}), true) == Content::kEmpty);
  std::vector<std::byte> padding(4);
  padding.back() = std::byte{4};
  CHECK(of(rtp({.has_padding = true}, padding), true) == Content::kEmpty);
  padding.back() = std::byte{5};
  CHECK(of(rtp({.sequence = 77, .has_padding = true}, padding), true) == Content::kNeither);
  LONGS_EQUAL(77, head.sequence);
  CHECK(of(rtp({.csrc_count = 15}, padding), true) == Content::kNeither);
  CHECK(of(rtp({.has_extension = true}, {}), true) == Content::kNeither);
  const auto whole = rtp({.sequence = 5}, transport(7));
  const DatagramContent its = content_of(whole, true, StreamFormat::kAuto, &head);
  CHECK(its.content == Content::kTruncated && its.has_number);
  LONGS_EQUAL(5, head.sequence);
  CHECK(of({}, false) == Content::kNeither);
  CHECK(of(std::vector<std::byte>(11, std::byte{0x80}), false) == Content::kNeither);
  auto unaligned = transport(8);
  unaligned.resize(1472);
  CHECK(of(unaligned, false) == Content::kNotWhole);
}

// Random datagrams are rarely taken for a transport stream, and only if more than half of their
// packets begin with the sync byte.
TEST(DatagramContent, ChanceIsNoTransportStream) {
  Dice dice;
  uint32_t taken = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(dice.below(8) * kTsPacketBytes + (dice.below(2) == 0 ? 12 : 0));
    for (std::byte& byte : bytes) byte = std::byte(dice.below(256));
    if (bytes.size() > 1) bytes[0] = std::byte(0x80 + dice.below(2) * 16);
    const DatagramContent its = content_of(bytes, false, StreamFormat::kAuto, &head);
    if (its.content != Content::kTransport) continue;
    ++taken;
    const size_t payload_bytes = its.has_number ? head.payload_bytes : bytes.size();
    size_t good = 0;
    for (size_t at = 0; at < payload_bytes; at += kTsPacketBytes) {
      good += bytes[head.header_bytes + at] == std::byte{kTsSync} ? 1 : 0;
    }
    CHECK(2 * good * kTsPacketBytes > payload_bytes);
  }
  CHECK(taken < 200);
}
