// A stream from its legs to its outputs, with simulated sockets: nothing is copied, each output
// gets all packets in order, and an error of one output does not affect the others.
#include "tests/apps/tsrelay/relay_rig.h"

#include <cerrno>
#include <memory>
#include <set>
#include <vector>

#include "apps/tsrelay/fec_receiver_datapath.h"
#include "tests/apps/tsrelay/dice.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

TEST_GROUP(RelayStream) {
  std::unique_ptr<RelayRig> rig;

  RelayRig& make(uint32_t legs = 1, uint32_t outputs = 1, bool has_fec = false) {
    rig = std::make_unique<RelayRig>(legs, outputs, has_fec);
    return *rig;
  }
};

TEST(RelayStream, NoByteIsCopiedOnItsWayToFiveHundredOutputs) {
  RelayRig& r = make(1, 500);
  r.create();
  for (uint32_t i = 0; i < 20; ++i) CHECK(r.give(0, r.rtp(i)));
  LONGS_EQUAL(20, r.kept_count());
  LONGS_EQUAL(0, r.out.sent.size());  // the work is done when the loop polls
  r.work();
  LONGS_EQUAL(10000, r.out.sent.size());
  LONGS_EQUAL(0, r.kept_count());
  std::set<const std::byte*> addresses;
  for (const auto& one : r.out.sent) {
    addresses.insert(one.bytes);
    CHECK(one.bytes >= r.legs[0]->memory.data());
    CHECK(one.bytes < r.legs[0]->memory.data() + r.legs[0]->memory.size());
  }
  LONGS_EQUAL(20, addresses.size());
  for (uint32_t i = 0; i < 500; ++i) {
    CHECK(without_rtp(r.out, RelayRig::port(i)) == r.input);
    LONGS_EQUAL(20, r.output(i).packets.read());
  }
  LONGS_EQUAL(20, r.counters->packets.read());
  LONGS_EQUAL(140, r.counters->ts_packets.read());
  LONGS_EQUAL(0, r.counters->held.read());
  LONGS_EQUAL(20, r.counters->queue_peak.read());
  LONGS_EQUAL(1, r.counters->window_peak.read());
}

TEST(RelayStream, PlainUdpIsToldFromRtp) {
  RelayRig& r = make(1, 2);
  r.outputs[1].is_plain = true;
  r.create();
  for (uint32_t i = 0; i < 5; ++i) CHECK(r.give(0, r.payload()));
  r.work();
  CHECK(r.out.all_to(RelayRig::port(0)) == r.input);
  CHECK(r.out.all_to(RelayRig::port(1)) == r.input);
  // A plain output gets packets without their RTP headers.
  RelayRig& other = make(1, 2);
  other.outputs[1].is_plain = true;
  other.create();
  for (uint32_t i = 0; i < 5; ++i) CHECK(other.give(0, other.rtp(i)));
  other.work();
  CHECK(other.out.all_to(RelayRig::port(1)) == other.input);
  LONGS_EQUAL(5 * 1328, other.out.all_to(RelayRig::port(0)).size());
}

TEST(RelayStream, WhatComesWithoutRtpIsGivenIt) {
  RelayRig& r = make(1, 3);
  r.options.adds_rtp = true;
  r.options.rtp_beginning = {.ssrc = 99, .sequence = 65530, .timestamp = 1000};
  r.outputs[1].adds_rtp = true;
  r.outputs[2].is_plain = true;
  r.create();
  for (uint32_t i = 0; i < 20; ++i) {
    CHECK(r.give(0, r.payload()));
    r.work(10 * kMs);
  }
  for (const uint32_t i : {0U, 2U}) CHECK(r.out.all_to(RelayRig::port(i)) == r.input);
  CHECK(without_rtp(r.out, RelayRig::port(1)) == r.input);
  uint32_t count = 0;
  for (const auto& one : r.out.sent) {
    if (one.to.port != RelayRig::port(1)) continue;
    RtpPacket packet;
    CHECK(parse_rtp(one.content, &packet) == RtpFault::kNone);
    LONGS_EQUAL((65530 + count) & 0xFFFF, packet.sequence);
    LONGS_EQUAL(1000 + rtp_clock(RelayRig::kBegin + (count + 1) * 10 * kMs), packet.timestamp);
    LONGS_EQUAL(99, packet.ssrc);
    // The header lies right before the packet, which is not moved.
    CHECK(std::find_if(r.out.sent.begin(), r.out.sent.end(), [&](const auto& other) {
            return other.bytes == one.bytes + kRtpHeaderBytes;
          }) != r.out.sent.end());
    ++count;
  }
  LONGS_EQUAL(20, count);
  LONGS_EQUAL(20, r.counters->rtp_added.read());
  // RTP that arrives is sent unchanged.
  const auto packet = r.rtp(7, 1234);
  r.work(1000 * kMs);
  CHECK(r.give(0, packet));
  r.work(10 * kMs);
  CHECK(r.out.sent[r.out.sent.size() - 2].content == packet);
  LONGS_EQUAL(20, r.counters->rtp_added.read());
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayStream, AddedRtpOfAPacedStreamSaysWhenItLeaves) {
  RelayRig& r = make();
  r.options.adds_rtp = true;
  r.options.pace_delay_ns = 20 * kMs;
  r.outputs[0].adds_rtp = true;
  r.create();
  for (uint32_t i = 0; i < 500; ++i) {
    r.give(0, r.payload());
    if (i % 5 == 4) r.work(5 * r.generator->ns_of(7));  // in bursts, which the pacer spreads
  }
  uint32_t checked = 0;
  size_t seen = 0;
  while (r.stream.deadline_ns() != LegMerge::kNever) {
    for (; seen < r.out.sent.size(); ++seen) {
    }
    r.now = r.stream.deadline_ns();
    r.work();
    for (; seen < r.out.sent.size(); ++seen, ++checked) {
      RtpPacket packet;
      CHECK(parse_rtp(r.out.sent[seen].content, &packet) == RtpFault::kNone);
      CHECK(rtp_clock(r.now) - packet.timestamp <= 1);
    }
  }
  CHECK(checked > 10);
}

TEST(RelayStream, AddedRtpHasFec) {
  RelayRig sending(1, 1);
  sending.options.adds_rtp = true;
  sending.options.fec_columns = sending.options.fec_rows = 5;
  sending.options.has_fec_rows = true;
  sending.outputs[0].adds_rtp = sending.outputs[0].has_fec = true;
  sending.create();
  RelayRig& r = make(1, 1, true);
  r.options.window_ns = 1'000'000 * kMs;
  r.create();
  size_t passed = 0;
  for (uint32_t i = 0; i < 300; ++i) {
    sending.give(0, sending.payload());
    sending.work(kMs);
    for (; passed < sending.out.sent.size(); ++passed) {
      const auto& one = sending.out.sent[passed];
      const bool is_media = one.to.port == RelayRig::port(0);
      const bool is_lost = is_media && i > 50 && i < 200 && i % 15 == i / 15 % 5;
      if (is_media && !is_lost) r.give(0, one.content);
      if (!is_media) r.fec_sockets[0]->give(one.content, at("10.0.0.1:5002"));
      r.work(kMs);
    }
  }
  CHECK(r.counters->fec_recovered.read() >= 8);
  LONGS_EQUAL(0, r.counters->lost.read());
  CHECK(without_rtp(r.out, RelayRig::port(0)) == sending.input);
  sending.stream.drain();
  r.stream.drain();
}

TEST(RelayStream, WhatMakesNoSenseIsCountedByItsCause) {
  RelayRig& r = make();
  r.create();
  std::vector<std::byte> bytes(3000);
  CHECK(r.give(0, bytes));  // longer than a buffer
  bytes.resize(100);
  CHECK(r.give(0, bytes));
  CHECK(r.give(0, {}));
  auto packet = r.rtp(1);
  packet[0] = std::byte{0x8F};
  CHECK(r.give(0, std::span(packet).first(40)));
  packet[0] = std::byte{0x80};
  CHECK(r.give(0, std::span(packet).first(500)));
  CHECK(r.give(0, std::span(packet).first(12)));  // RTP without payload, of no sender of the stream
  const auto bare = r.payload();
  CHECK(r.give(0, std::span(bare).first(500)));
  packet[1] = std::byte{8};  // G.711
  CHECK(r.give(0, packet));
  packet[1] = std::byte{kRtpTransportStream};
  for (uint32_t i = 0; i < 4; ++i) packet[12 + i * kTsPacketBytes] = std::byte{0xD5};
  CHECK(r.give(0, packet));
  r.work();
  LONGS_EQUAL(1, r.leg().truncated.read());
  LONGS_EQUAL(3, r.leg().rtp_malformed.read());
  LONGS_EQUAL(2, r.leg().ts_malformed.read());
  LONGS_EQUAL(1, r.leg().foreign.read());
  LONGS_EQUAL(1, r.leg().other_type.read());
  LONGS_EQUAL(1, r.leg().no_sync.read());
  LONGS_EQUAL(0, r.leg().packets.read() + r.leg().senders.read());
  LONGS_EQUAL(0, r.kept_count());
  LONGS_EQUAL(0, r.out.sent.size());
}

TEST(RelayStream, TwoLegsThatLoseAreOneThatDoesNot) {
  RelayRig& r = make(2);
  r.create();
  Dice dice;
  std::vector<std::byte> wanted;
  uint32_t lost = 0;
  for (uint32_t i = 0; i < 5000; ++i) {
    const auto packet = r.rtp(65000 + i);
    const bool by_first = i == 0 || i == 4999 || dice.below(100) >= 10;
    const bool by_second = i == 0 || dice.below(100) >= 10;
    if (by_first) r.give(0, packet, "10.0.0.1:5000");
    if (by_second) r.give(1, packet, "10.0.1.1:6000");
    lost += by_first || by_second ? 0 : 1;
    if (by_first || by_second) {
      wanted.insert(wanted.end(), packet.begin() + kRtpHeaderBytes, packet.end());
    }
    r.work(kMs / 10);
  }
  r.work(10 * kMs);
  CHECK(without_rtp(r.out, RelayRig::port(0)) == wanted);
  LONGS_EQUAL(lost, r.counters->lost.read());
  CHECK(r.leg(0).lost.read() > 300 && r.leg(1).lost.read() > 300);
  LONGS_EQUAL(0, r.kept_count());
  LONGS_EQUAL(1, r.leg(0).senders.read());
  LONGS_EQUAL(0, r.leg(0).foreign.read() + r.leg(1).foreign.read());
}

TEST(RelayStream, ASecondSenderToTheSameAddressIsLeftOut) {
  RelayRig& r = make();
  r.create();
  TsGenerator other_generator;
  for (uint32_t i = 0; i < 100; ++i) {
    r.give(0, r.rtp(i, 7), "10.0.0.1:5000");
    const auto before = r.input;
    r.give(0, r.rtp(30000 + i, 8), "10.0.0.2:5000");  // another address and SSRC
    r.give(0, r.rtp(i, 7), "10.0.0.3:5000");          // another address
    r.give(0, r.rtp(i, 9), "10.0.0.1:5000");          // another SSRC
    r.input = before;
    r.work(kMs);
  }
  LONGS_EQUAL(299, r.leg().foreign.read());  // the last packet of the other SSRC waits
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
  LONGS_EQUAL(0, r.counters->lost.read() + r.counters->restarts.read());
  // The first sender falls silent.
  r.give(0, r.rtp(500, 8), "10.0.0.2:5000");
  r.work(499 * kMs);
  LONGS_EQUAL(300, r.leg().foreign.read());
  r.give(0, r.rtp(501, 8), "10.0.0.2:5000");
  r.work(2 * kMs);
  LONGS_EQUAL(101, r.out.sent.size());
  LONGS_EQUAL(301, r.leg().foreign.read());
  LONGS_EQUAL(2, r.leg().senders.read());
  LONGS_EQUAL(1, r.counters->restarts.read());
}

TEST(RelayStream, ARestartOfNumbersLosesNothing) {
  RelayRig& r = make();
  r.create();
  for (uint32_t i = 0; i < 50; ++i) r.give(0, r.rtp(40000 + i));
  r.work();
  for (uint32_t i = 0; i < 50; ++i) r.give(0, r.rtp(i));
  r.work();
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
  LONGS_EQUAL(1, r.counters->restarts.read());
  LONGS_EQUAL(0, r.counters->lost.read());
}

TEST(RelayStream, AClockThatIsSetIsNobodysBusiness) {
  constexpr uint64_t kHour = 3'600'000 * kMs;
  RelayRig& r = make();
  r.options.pace_delay_ns = 20 * kMs;
  r.create();
  uint64_t received = 500'000 * kHour;
  const uint64_t period_ns = r.generator->ns_of(7);
  for (uint32_t i = 0; i < 600; ++i) {
    auto packet = r.rtp(i);
    store_u32(packet.data() + 4, rtp_clock(i * period_ns));
    received += period_ns;
    if (i == 200) received += kHour;
    if (i == 400) received -= 2 * kHour;
    CHECK(r.legs[0]->give(packet, at("10.0.0.1:5000"), received));
    r.work(period_ns);
  }
  CHECK(r.leg().jitter_ns.read() < kMs);
  LONGS_EQUAL(1, r.counters->pace_restarts.read());  // at the beginning
  LONGS_EQUAL(0, r.counters->restarts.read() + r.leg().foreign.read());
  r.stream.drain();
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
}

TEST(RelayStream, AnOutputThatIsRefusedHoldsNobody) {
  RelayRig& r = make(1, 3);
  r.create();
  r.out.refused_port = RelayRig::port(1);
  for (uint32_t i = 0; i < 200; ++i) {
    r.give(0, r.rtp(i));
    if (i % 10 == 0) r.work();
  }
  r.work();
  LONGS_EQUAL(200, r.output(1).refused.read());
  LONGS_EQUAL(0, r.output(1).packets.read());
  for (const uint32_t i : {0U, 2U}) CHECK(without_rtp(r.out, RelayRig::port(i)) == r.input);
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayStream, ASocketWithoutRoomLosesTheOldestFirst) {
  RelayRig& r = make(1, 2);
  r.create();
  r.out.room = 3;  // the second packet reaches only the first output
  for (uint32_t i = 0; i < 300; ++i) {
    CHECK(r.give(0, r.rtp(i)));
    r.work();
  }
  LONGS_EQUAL(3, r.out.sent.size());
  LONGS_EQUAL(256, r.kept_count());  // the size of the ring
  // 44 of the 300 are gone: the first output got two of them, the second output one.
  LONGS_EQUAL(42, r.output(0).dropped.read());
  LONGS_EQUAL(43, r.output(1).dropped.read());
  r.out.room = ~size_t{0};
  LONGS_EQUAL(0, r.work());
  r.out.owner.has_room(r.out.owner.context);
  CHECK(r.work() > 0);
  LONGS_EQUAL(300 - 42, r.out.count_to(RelayRig::port(0)));
  LONGS_EQUAL(300 - 43, r.out.count_to(RelayRig::port(1)));
  LONGS_EQUAL(0, r.kept_count());
  LONGS_EQUAL(44, load_u16(r.out.sent[3].content.data() + 2));
  LONGS_EQUAL(299, load_u16(r.out.sent.back().content.data() + 2));
}

TEST(RelayStream, AnOutputThatIsMutedIsSentNothingAndTheOthersAll) {
  RelayRig& r = make(1, 3);
  r.create();
  for (uint32_t i = 0; i < 300; ++i) {
    r.outputs[1].mute(i / 100 == 1, r.stream.ring().end());
    r.give(0, r.rtp(i));
    r.work();
  }
  for (const uint32_t i : {0U, 2U}) CHECK(without_rtp(r.out, RelayRig::port(i)) == r.input);
  LONGS_EQUAL(200, r.out.count_to(RelayRig::port(1)));
  LONGS_EQUAL(0, r.output(1).dropped.read());
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayStream, WhatCameWhileItWasMutedIsNotSentLaterEither) {
  RelayRig& r = make(1, 1);
  r.create();
  r.out.room = 0;  // the first packet waits, and all behind it
  r.give(0, r.rtp(0));
  r.work();
  r.outputs[0].mute(true, r.stream.ring().end());
  for (uint32_t i = 1; i < 100; ++i) {
    r.give(0, r.rtp(i));
    r.work();
  }
  r.outputs[0].mute(false, r.stream.ring().end());
  r.out.room = ~size_t{0};
  r.out.owner.has_room(r.out.owner.context);
  for (uint32_t i = 100; i < 150; ++i) {
    r.give(0, r.rtp(i));
    r.work();
  }
  LONGS_EQUAL(50, r.out.count_to(RelayRig::port(0)));
}

TEST(RelayStream, AnAddressThatNobodyAnswersForGetsASocketOfItsOwn) {
  RelayRig& r = make(1, 3);
  r.create();
  for (uint32_t i = 0; i < 10; ++i) r.give(0, r.rtp(i));
  r.work();
  r.out.owner.failed(r.out.owner.context, ECONNREFUSED, r.outputs[1].to);
  LONGS_EQUAL(1, r.output(1).unreachable.read());
  LONGS_EQUAL(0, r.output(1).is_aside.read());
  r.out.owner.failed(r.out.owner.context, EHOSTUNREACH, r.outputs[1].to);
  LONGS_EQUAL(1, r.output(1).is_aside.read());
  // The other outputs go on, whatever happens to this one.
  r.out_aside.room = 0;
  for (uint32_t i = 10; i < 1000; ++i) {
    r.give(0, r.rtp(i));
    r.work();
  }
  for (const uint32_t i : {0U, 2U}) CHECK(without_rtp(r.out, RelayRig::port(i)) == r.input);
  LONGS_EQUAL(10, r.out.count_to(RelayRig::port(1)));
  CHECK(r.output(1).dropped.read() > 700);
  // After ten seconds without an error it rejoins the other outputs.
  r.out_aside.room = ~size_t{0};
  r.out_aside.owner.has_room(r.out_aside.owner.context);
  r.work();
  r.work(OutputGroup::kAsideNs);
  r.give(0, r.rtp(1000));
  r.work();
  r.give(0, r.rtp(1001));
  r.work();
  LONGS_EQUAL(0, r.output(1).is_aside.read());
  LONGS_EQUAL(1001, load_u16(r.out.sent.back().content.data() + 2));
  LONGS_EQUAL(1002, r.output(1).packets.read() + r.output(1).dropped.read());
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayStream, WhatMovesInTheMiddleOfAPacketIsCountedRight) {
  RelayRig& r = make(1, 3);
  r.create();
  r.out.room = 3;  // two packets to the first output, one to the second
  for (uint32_t i = 0; i < 2; ++i) r.give(0, r.rtp(i));
  r.work();
  // The first output has both packets. The second lacks one, which the other group has passed.
  r.out.owner.failed(r.out.owner.context, EHOSTUNREACH, r.outputs[0].to);
  r.out.owner.failed(r.out.owner.context, EHOSTUNREACH, r.outputs[1].to);
  LONGS_EQUAL(0, r.output(0).dropped.read());
  LONGS_EQUAL(1, r.output(1).dropped.read());
  r.out.room = ~size_t{0};
  r.out.owner.has_room(r.out.owner.context);
  r.give(0, r.rtp(2));
  r.work();
  CHECK(without_rtp(r.out, RelayRig::port(2)) == r.input);
  LONGS_EQUAL(1, r.out_aside.count_to(RelayRig::port(0)));
  LONGS_EQUAL(1, r.out_aside.count_to(RelayRig::port(1)));
  LONGS_EQUAL(2, load_u16(r.out_aside.sent[0].content.data() + 2));
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayStream, AMutedOutputThatMovesHasDroppedNothing) {
  RelayRig& r = make(1, 2);
  r.create();
  r.outputs[1].mute(true, r.stream.ring().end());
  r.out.room = 0;
  for (uint32_t i = 0; i < 3; ++i) r.give(0, r.rtp(i));
  r.work();
  for (const Output& output : r.outputs) {
    r.out.owner.failed(r.out.owner.context, EHOSTUNREACH, output.to);
  }
  LONGS_EQUAL(3, r.output(0).dropped.read());
  LONGS_EQUAL(0, r.output(1).dropped.read());
  r.work();
  LONGS_EQUAL(0, r.kept_count());
}

TEST(RelayStream, WhatIsThereTogetherGoesToEachOutputInARow) {
  RelayRig& r = make(1, 3);
  r.create();
  for (uint32_t i = 0; i < 60; ++i) r.give(0, r.rtp(i));
  r.work();
  LONGS_EQUAL(180, r.out.sent.size());
  // Packets are sent in blocks of 48, the most that fit into one message.
  size_t at = 0;
  for (const auto& [first, end] : {std::pair{0U, 48U}, std::pair{48U, 60U}}) {
    for (uint32_t output = 0; output < 3; ++output) {
      for (uint32_t number = first; number < end; ++number, ++at) {
        LONGS_EQUAL(RelayRig::port(output), r.out.sent[at].to.port);
        LONGS_EQUAL(number, load_u16(r.out.sent[at].content.data() + 2));
      }
    }
  }
}

TEST(RelayStream, WhateverStallsEachOutputGetsOrMissesEachPacketOnce) {
  constexpr uint32_t kOutputs = 7;
  RelayRig& r = make(1, kOutputs);
  r.create();
  Dice dice;
  uint32_t given = 0;
  const auto socket_goes_on = [](FakeSocket& socket, size_t room) {
    socket.room = room;
    socket.owner.has_room(socket.owner.context);
  };
  for (uint32_t step = 0; step < 200; ++step) {
    for (uint32_t burst = dice.below(60); burst > 0; --burst) r.give(0, r.rtp(given++));
    r.work(dice.below(4) == 0 ? 2000 * kMs : kMs);
    if (dice.below(3) == 0) socket_goes_on(r.out, dice.below(900));
    if (dice.below(3) == 0) socket_goes_on(r.out_aside, dice.below(300));
    if (dice.below(10) == 0) {
      const uint32_t output = dice.below(kOutputs);
      FakeSocket& socket = r.output(output).is_aside.read() == 1 ? r.out_aside : r.out;
      socket.owner.failed(socket.owner.context, EHOSTUNREACH, r.outputs[output].to);
    }
    if (dice.below(20) == 0) {
      r.out.refused_port = dice.below(2) == 0 ? 0 : RelayRig::port(dice.below(kOutputs));
    }
    CHECK(r.group.is_valid());
    CHECK(r.aside.is_valid());
  }
  r.out.refused_port = 0;
  for (uint32_t i = 0; i < 3; ++i) {  // outputs that are aside come back
    socket_goes_on(r.out, ~size_t{0});
    socket_goes_on(r.out_aside, ~size_t{0});
    r.work(2 * OutputGroup::kAsideNs);
  }
  LONGS_EQUAL(given, r.counters->packets.read());
  LONGS_EQUAL(0, r.kept_count());
  for (uint32_t i = 0; i < kOutputs; ++i) {
    const OutputCounters& its = r.output(i);
    LONGS_EQUAL(given, its.packets.read() + its.dropped.read() + its.refused.read());
    LONGS_EQUAL(r.out.count_to(RelayRig::port(i)) + r.out_aside.count_to(RelayRig::port(i)),
                its.packets.read());
  }
  for (const FakeSocket* socket : {&r.out, &r.out_aside}) {
    std::vector<uint32_t> next(kOutputs);
    for (const auto& one : socket->sent) {
      const uint32_t output = (one.to.port - RelayRig::kFirstPort) / RelayRig::kPortStep;
      const uint32_t number = load_u16(one.content.data() + 2);
      CHECK(number >= next[output]);
      next[output] = number + 1;
    }
  }
}

TEST(RelayStream, PacketsLeaveAtThePaceOfTheirPcrs) {
  RelayRig& r = make();
  r.options.pace_delay_ns = 20 * kMs;
  r.create();
  // Gives 300 ms of a stream, at its pace.
  uint32_t count = 0;
  for (uint64_t sent_ns = 0; sent_ns < 300 * kMs; ++count) {
    sent_ns = r.generator->ns_of(r.generator->packet_count());
    r.give(0, r.rtp(count));
    r.work(r.generator->ns_of(7));
  }
  const size_t early = r.out.sent.size();
  CHECK(early > 0 && early < count);
  while (r.stream.deadline_ns() != LegMerge::kNever) {
    CHECK(r.stream.deadline_ns() > r.now);
    const size_t before = r.out.sent.size();
    r.now = r.stream.deadline_ns();
    r.work();
    CHECK(r.out.sent.size() > before);
  }
  LONGS_EQUAL(count, r.out.sent.size());
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
}

TEST(RelayStream, APaceThatIsTooSlowForTheRingIsHurried) {
  RelayRig& r = make();
  r.options.pace_delay_ns = 100'000 * kMs;
  r.create();
  for (uint32_t i = 0; i < 400; ++i) {
    r.give(0, r.rtp(i));
    r.work();
  }
  LONGS_EQUAL(400 - 256, r.out.sent.size());
  LONGS_EQUAL(0, r.output().dropped.read());
}

TEST(RelayStream, FecOfOneRelayIsReadByAnother) {
  Dice dice;
  RelayRig sending(1, 1);
  sending.options.fec_columns = 5;
  sending.options.fec_rows = 5;
  sending.options.has_fec_rows = true;
  sending.outputs[0].has_fec = true;
  sending.create();
  RelayRig& r = make(1, 1, true);
  r.options.window_ns = 1'000'000 * kMs;
  r.create();
  size_t passed = 0;
  uint32_t lost = 0;
  for (uint32_t i = 0; i < 2000; ++i) {
    sending.give(0, sending.rtp(65000 + i));
    sending.work(kMs);
    for (; passed < sending.out.sent.size(); ++passed) {
      const auto& one = sending.out.sent[passed];
      if (one.to.port == RelayRig::port(0)) {
        // One packet of each third row is lost, in changing columns, so no set lacks two.
        const bool is_lost = i > 100 && i % 15 == i / 15 % 5 && i < 1900;
        lost += is_lost ? 1 : 0;
        if (!is_lost) r.give(0, one.content);
      } else {
        r.fec_sockets[0]->give(one.content, at("10.0.0.1:5002"));
      }
      r.work(kMs);
    }
  }
  CHECK(lost > 100);
  LONGS_EQUAL(lost, r.counters->fec_recovered.read());
  LONGS_EQUAL(0, r.counters->lost.read());
  CHECK(without_rtp(r.out, RelayRig::port(0)) == sending.input);
  LONGS_EQUAL(0, r.counters->fec_malformed.read() + r.counters->ts_continuity_errors.read());
  // FEC is sent to ports of its own.
  CHECK(sending.out.count_to(RelayRig::port(0) + kFecColumnPort) > 380);
  LONGS_EQUAL(400, sending.out.count_to(RelayRig::port(0) + kFecRowPort));
  sending.stream.drain();
  r.stream.drain();
  CHECK(r.stream.is_drained());
}

TEST(RelayStream, DrainingHandsOnWhatIsHeld) {
  RelayRig& r = make(1, 1, true);
  r.options.window_ns = 1'000'000 * kMs;
  r.options.pace_delay_ns = 1'000'000 * kMs;
  r.create();
  for (const uint32_t i : {1U, 2U, 5U, 6U, 9U}) r.give(0, r.rtp(i));
  r.work();
  LONGS_EQUAL(0, r.out.sent.size());
  r.stream.drain();
  CHECK(r.stream.is_drained());
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
  LONGS_EQUAL(4, r.counters->lost.read());
  LONGS_EQUAL(0, r.kept_count());
}
