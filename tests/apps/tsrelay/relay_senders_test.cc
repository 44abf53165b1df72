// The sender that has a leg: it continues at once after a restart, and two senders that share an
// address do not take turns.
#include "tests/apps/tsrelay/relay_rig.h"
#include "tests/apps/tsrelay/ts_mux.h"

#include <map>
#include <memory>
#include <vector>

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

TEST_GROUP(RelaySenders) {
  std::unique_ptr<RelayRig> rig;

  RelayRig& make(uint32_t legs = 1, uint32_t outputs = 1, bool has_fec = false) {
    rig = std::make_unique<RelayRig>(legs, outputs, has_fec);
    return *rig;
  }
};

TEST(RelaySenders, ASenderThatRestartsWithAnotherSsrcGoesOnAtOnce) {
  RelayRig& r = make();
  r.create();
  for (uint32_t i = 0; i < 400; ++i) {
    r.give(0, r.rtp(i % 40 + 100 * (i / 40), 1000 + i / 40));
    r.work(kMs);
  }
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
  LONGS_EQUAL(10, r.leg().senders.read());
  LONGS_EQUAL(9, r.counters->restarts.read());
  LONGS_EQUAL(0, r.leg().foreign.read() + r.counters->lost.read());
}

TEST(RelaySenders, ARestartOnTwoLegsOneBehindTheOther) {
  RelayRig& r = make(2);
  r.create();
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t i = 0; i < 600; ++i) sent.push_back(r.rtp(i % 100, 50 + i / 100));
  constexpr size_t kBehind = 20;
  for (size_t i = 0; i < sent.size() + kBehind; ++i) {
    if (i < sent.size()) r.give(0, sent[i], "10.0.0.1:5000");
    if (i >= kBehind) r.give(1, sent[i - kBehind], "10.0.1.1:6000");
    r.work(kMs / 10);
  }
  r.stream.drain();
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
  LONGS_EQUAL(5, r.counters->restarts.read() - 1);  // the last one is the drain
  LONGS_EQUAL(0, r.counters->lost.read() + r.leg(0).foreign.read());
  LONGS_EQUAL(6, r.leg(0).senders.read());
  LONGS_EQUAL(6, r.leg(1).senders.read());
  LONGS_EQUAL(5 * (kBehind - 1), r.leg(1).foreign.read());  // of the previous SSRC
}

TEST(RelaySenders, TwoBehindOneAddressDoNotTakeTurns) {
  constexpr uint32_t kEach = 300;
  for (const uint32_t burst : {1U, 2U, 7U, 50U}) {
    RelayRig& r = make();
    r.create();
    uint32_t numbers[3] = {100, 200, 300};
    uint32_t given = 0;
    for (uint32_t i = 0; i < 3 * kEach; ++i) {
      const uint32_t which = i / burst % 3;
      given += r.give(0, r.rtp(numbers[which]++, 1 + which)) ? 1 : 0;
      r.work(kMs / 10);
    }
    LONGS_EQUAL(3 * kEach, given);
    r.stream.drain();
    // The sender that comes back keeps the leg.
    std::map<uint32_t, uint32_t> came;
    for (const auto& one : r.out.sent) ++came[load_u32(one.content.data() + 8)];
    CHECK(came[1] >= kEach - 2 * burst);
    CHECK(came[2] + came[3] <= 2 * burst);
    CHECK(r.counters->restarts.read() <= 4);
    LONGS_EQUAL(0, r.kept_count());
  }
}

TEST(RelaySenders, AStrayPacketTakesNothing) {
  RelayRig& r = make();
  r.create();
  for (uint32_t i = 0; i < 300; ++i) {
    const auto before = r.input;
    const auto stray = r.rtp(i * 31, 500 + i % 2);
    r.input = before;
    r.give(0, r.rtp(i));
    r.give(0, stray);
    if (i % 5 == 0) r.give(0, stray);  // a repetition is not the next packet
    r.work(kMs);
  }
  CHECK(without_rtp(r.out, RelayRig::port(0)) == r.input);
  LONGS_EQUAL(1, r.leg().senders.read());
  LONGS_EQUAL(1, r.kept_count());  // it waits for a second one, but not for ever
  r.now += 600 * kMs;
  r.stream.look_for_missing(r.now);
  LONGS_EQUAL(0, r.kept_count());
  LONGS_EQUAL(360, r.leg().foreign.read());
}

TEST(RelaySenders, TheStreamOfAnotherSenderIsLearnedAnew) {
  RelayRig& r = make();
  r.options.pace_delay_ns = 20 * kMs;
  r.create();
  for (uint32_t i = 0; i < 300; ++i) {
    r.give(0, r.rtp(i));
    r.work(r.generator->ns_of(7));
  }
  LONGS_EQUAL(1, r.counters->ts_programs.read());
  CHECK(r.counters->ts_bit_rate.read() > 0);
  r.work(501 * kMs);
  // The new sender has no tables and no clock. Those of the old sender do not count any more.
  TsMux mux;
  for (uint32_t i = 0; i < 10; ++i) {
    Bytes packet(kRtpHeaderBytes);
    write_rtp({.sequence = static_cast<uint16_t>(i), .ssrc = 9, .payload_type = 33}, packet.data());
    const Bytes plain = mux.plain(TsGenerator::kVideoPid);
    packet.insert(packet.end(), plain.begin(), plain.end());
    r.give(0, packet, "10.0.0.2:5000");
    r.work();
    LONGS_EQUAL(0, r.counters->ts_programs.read() + r.counters->ts_bit_rate.read());
    LONGLONGS_EQUAL(r.now + 20 * kMs, r.stream.deadline_ns());
    r.work(21 * kMs);
  }
  LONGS_EQUAL(0, r.counters->ts_continuity_errors.read() + r.leg().foreign.read());
}
