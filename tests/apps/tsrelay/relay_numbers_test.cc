// Datagrams with an RTP number but without a transport stream: no other packet waits for them.
#include "tests/apps/tsrelay/relay_rig.h"

#include <memory>
#include <vector>

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

TEST_GROUP(RelayNumbers) {
  std::unique_ptr<RelayRig> rig;

  RelayRig& make(uint32_t legs = 1, uint32_t outputs = 1, bool has_fec = false) {
    rig = std::make_unique<RelayRig>(legs, outputs, has_fec);
    return *rig;
  }
};

// A packet that is dropped for its content uses up its number.
TEST(RelayNumbers, WhatIsDroppedBehindAGoodHeadIsNotLost) {
  RelayRig& r = make(1, 2);
  r.outputs[1].is_plain = true;
  r.options.window_ns = 200 * kMs;
  r.create();
  uint32_t number = 65'500;
  std::vector<std::byte> wanted;
  const auto give_good = [&] {
    const auto packet = r.rtp(number++);
    wanted.insert(wanted.end(), packet.begin() + kRtpHeaderBytes, packet.end());
    r.give(0, packet);
  };
  for (uint32_t i = 0; i < 60; ++i) {
    give_good();
    std::vector<std::byte> other(3000);
    write_rtp({.sequence = static_cast<uint16_t>(number++),
               .ssrc = 7,
               .payload_type = static_cast<uint8_t>(i % 6 == 1 ? 8 : kRtpTransportStream),
               .has_padding = i % 6 == 2,
               .has_extension = i % 6 == 3,
               .csrc_count = static_cast<uint8_t>(i % 6 == 4 ? 15 : 0)},
              other.data());
    const size_t bytes[] = {3000, 12 + 376, 12 + 376, 12 + 376, 20, 12 + 100};
    other.resize(bytes[i % 6]);
    if (i % 6 == 3) store_u16(other.data() + 14, 5000);
    r.give(0, other);
    give_good();
    r.work();
  }
  LONGS_EQUAL(0, r.counters->lost.read() + r.counters->restarts.read() + r.leg().lost.read());
  LONGS_EQUAL(LegMerge::kNever, r.stream.deadline_ns());  // no packet waits
  LONGS_EQUAL(1, r.counters->window_peak.read());
  CHECK(without_rtp(r.out, RelayRig::port(0)) == wanted);
  CHECK(r.out.all_to(RelayRig::port(1)) == wanted);
  LONGS_EQUAL(10, r.leg().truncated.read());
  LONGS_EQUAL(10, r.leg().other_type.read());
  LONGS_EQUAL(30, r.leg().rtp_malformed.read());  // a padding of 0, and wrong lengths
  LONGS_EQUAL(10, r.leg().ts_malformed.read());
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayNumbers, RtpWithoutPayloadGoesOnToThoseThatGetRtp) {
  RelayRig& r = make(1, 2);
  r.outputs[1].is_plain = true;
  r.options.window_ns = 200 * kMs;
  r.options.pace_delay_ns = 20 * kMs;
  r.create();
  std::vector<std::byte> all;
  for (uint32_t number = 0; number < 200; ++number) {
    auto packet = r.rtp(number);
    if (number % 8 == 7) {
      const size_t padding = number % 16 == 7 ? 4 : 0;
      packet.resize(kRtpHeaderBytes + padding);
      if (padding > 0) packet[0] |= std::byte{0x20};
      if (padding > 0) packet.back() = std::byte{4};
      r.input.resize(r.input.size() - 7 * kTsPacketBytes);
    }
    all.insert(all.end(), packet.begin(), packet.end());
    r.give(0, packet);
    r.work(2 * kMs);
  }
  r.stream.drain();
  CHECK(r.out.all_to(RelayRig::port(0)) == all);
  CHECK(r.out.all_to(RelayRig::port(1)) == r.input);
  LONGS_EQUAL(25, r.leg().empty.read());
  LONGS_EQUAL(175, r.leg().packets.read());
  LONGS_EQUAL(0, r.counters->lost.read() + r.leg().ts_malformed.read());
  LONGS_EQUAL(175, r.output(1).packets.read());
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayNumbers, RtpWithoutPayloadIsOneOfItsFecSet) {
  RelayRig sending(1, 1);
  sending.options.fec_columns = sending.options.fec_rows = 5;
  sending.options.has_fec_rows = true;
  sending.outputs[0].has_fec = true;
  sending.create();
  RelayRig& r = make(1, 1, true);
  r.options.window_ns = 1'000'000 * kMs;
  r.create();
  size_t passed = 0;
  uint32_t media = 0;
  uint32_t lost = 0;
  for (uint32_t i = 0; i < 600; ++i) {
    auto packet = sending.rtp(i);
    if (i % 7 == 3) {
      packet.resize(kRtpHeaderBytes + 4);
      packet[0] |= std::byte{0x20};
      packet.back() = std::byte{4};
      sending.input.resize(sending.input.size() - 7 * kTsPacketBytes);
    }
    sending.give(0, packet);
    sending.work(kMs);
    for (; passed < sending.out.sent.size(); ++passed) {
      const auto& one = sending.out.sent[passed];
      if (one.to.port != RelayRig::port(0)) {
        r.fec_sockets[0]->give(one.content, at("10.0.0.1:5002"));
      } else {  // one packet of each third row is lost
        const bool is_lost = media > 100 && media < 500 && media % 15 == media / 15 % 5;
        lost += is_lost ? 1 : 0;
        if (!is_lost) r.give(0, one.content);
        ++media;
      }
      r.work(kMs);
    }
  }
  LONGS_EQUAL(600, media);
  LONGS_EQUAL(0, sending.counters->fec_unprotected.read());
  LONGS_EQUAL(lost, r.counters->fec_recovered.read());
  LONGS_EQUAL(0, r.counters->lost.read() + r.counters->fec_malformed.read());
  std::vector<std::byte> came;
  for (const auto& one : r.out.sent) {
    RtpPacket rtp;
    CHECK(parse_rtp(one.content, &rtp) == RtpFault::kNone);
    const auto payload = std::span(one.content).subspan(rtp.header_bytes, rtp.payload_bytes);
    came.insert(came.end(), payload.begin(), payload.end());
  }
  LONGS_EQUAL(600, r.out.sent.size());
  CHECK(came == sending.input);
  sending.stream.drain();
  r.stream.drain();
}

TEST(RelayNumbers, WhatOthersSendHasNoNumberHere) {
  RelayRig& r = make();
  r.options.window_ns = 200 * kMs;
  r.create();
  std::vector<std::byte> empty(kRtpHeaderBytes);
  for (uint32_t i = 0; i < 100; ++i) {
    r.give(0, r.rtp(i));
    write_rtp({.sequence = static_cast<uint16_t>(i + 1), .ssrc = 7}, empty.data());
    r.give(0, empty, "10.0.0.2:5000");
    write_rtp({.sequence = static_cast<uint16_t>(i + 1), .ssrc = 8}, empty.data());
    r.give(0, empty);
    r.work(kMs);
  }
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
  LONGS_EQUAL(200, r.leg().foreign.read());
  // A sender of empty packets does not keep the leg from a sender of a stream.
  write_rtp({.sequence = 100, .ssrc = 7}, empty.data());
  for (uint32_t i = 0; i < 60; ++i) {
    r.give(0, empty);
    r.work(10 * kMs);
  }
  r.stream.look_for_missing(r.now);
  LONGS_EQUAL(1, r.leg().is_silent.read());
  r.give(0, r.rtp(0, 9), "10.0.0.2:5000");
  r.work();
  LONGS_EQUAL(2, r.leg().senders.read());
}
