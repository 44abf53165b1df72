// A leg reports whether it gets packets, nothing, or datagrams that it drops, and the cause.
#include "tests/apps/tsrelay/relay_rig.h"

#include <vector>

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

TEST_GROUP(LegArrival) {
  RelayRig rig;

  void setup() override { rig.create(); }
  void give(std::span<const std::byte> datagram) { rig.give(0, datagram); }
  // Gives the leg `datagrams`, and lets a second pass. Returns the leg's report.
  const char* seen(const std::vector<std::vector<std::byte>>& datagrams) {
    for (const auto& each : datagrams) rig.give(0, each);
    rig.work(1000 * kMs);
    rig.stream.look_for_missing(rig.now);
    return kLegArrivals[rig.leg().comes.read()].word;
  }
  static std::vector<std::byte> plain(size_t bytes) {
    std::vector<std::byte> made(bytes, std::byte{0x47});
    return made;
  }
};

TEST(LegArrival, IsNothingOfASenderThatIsSilent) {
  STRCMP_EQUAL("packets", seen({}));  // the first look
  STRCMP_EQUAL("nothing", seen({}));
  rig.give(0, rig.rtp(1));
  rig.work(1);
  rig.stream.look_for_missing(rig.now);
  LONGS_EQUAL(0, rig.leg().comes.read());
  STRCMP_EQUAL("nothing", seen({}));
}

// ffmpeg's datagrams have 1472 bytes by default.
TEST(LegArrival, IsWhatIsDroppedMost) {
  (void)seen({});
  auto rtp = rig.rtp(1);
  rtp.resize(500);
  const std::vector<std::byte> neither(100, std::byte{0x11});
  STRCMP_EQUAL("no RTP", seen({neither, neither, rtp}));
  STRCMP_EQUAL("no whole TS", seen({plain(1472), neither, rtp}));
  STRCMP_EQUAL("too long", seen({plain(3000)}));
}

TEST(LegArrival, StaysForAWhileAndEnds) {
  (void)seen({});
  STRCMP_EQUAL("too long", seen({plain(3000)}));
  for (int second = 0; second < 4; ++second) STRCMP_EQUAL("too long", seen({}));
  STRCMP_EQUAL("nothing", seen({}));
}

TEST(LegArrival, IsPacketsThoughSomeAreDropped) {
  (void)seen({});
  for (const uint32_t number : {1U, 2U}) {
    rig.give(0, plain(3000));
    rig.give(0, rig.rtp(number));
    rig.work(100 * kMs);
    rig.stream.look_for_missing(rig.now);
    LONGS_EQUAL(0, rig.leg().comes.read());
  }
}

TEST(LegArrival, IsNoInterfaceWhereThereIsNone) {
  (void)seen({});
  rig.stream.set_has_interface(0, false);
  STRCMP_EQUAL("no interface", seen({}));
  rig.stream.set_has_interface(0, true);
  STRCMP_EQUAL("nothing", seen({}));
}
