// The faults that TR 101 290 lists, one by one: each is made in a stream without other faults, and
// is counted once, and not as another fault.
#include "apps/tsrelay/ts_inspector_datapath.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "apps/examples/ts_generator.h"
#include "tests/apps/tsrelay/ts_mux.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

TEST_GROUP(TsInspector) {
  std::unique_ptr<TsGenerator> generator = std::make_unique<TsGenerator>();
  std::unique_ptr<TsInspector> inspector = std::make_unique<TsInspector>();
  std::byte packet[kTsPacketBytes];
  uint64_t now = 1;

  const TsReport& report() { return inspector->report(); }
  // Makes the next packet. Returns its header.
  TsPacket next() {
    now = 1 + generator->ns_of(generator->packet_count());
    generator->next(packet);
    TsPacket parsed;
    CHECK(parse_ts(packet, &parsed));
    return parsed;
  }
  // Makes the next packet of this PID that has a payload. Inspects the packets before it.
  TsPacket next_of(uint16_t pid) {
    for (TsPacket parsed = next();; parsed = next()) {
      if (parsed.pid == pid && parsed.has_payload) return parsed;
      pass();
    }
  }
  void pass() { inspector->inspect(packet, now); }
  void run(uint64_t ns) {
    const uint64_t until = now + ns;
    while (now < until) {
      next();
      pass();
    }
  }
  // Returns the number of all faults, less `but`.
  uint64_t faults(uint64_t but = 0) {
    const TsReport& r = report();
    return r.sync_losses + r.sync_byte_errors + r.pat_errors + r.continuity_errors + r.pmt_errors +
           r.pid_errors + r.transport_errors + r.crc_errors + r.pcr_discontinuities - but;
  }
};

TEST(TsInspector, Sync) {
  run(100 * kMs);
  next_of(kNullPid);
  packet[0] = std::byte{0x46};
  pass();
  LONGS_EQUAL(1, report().sync_byte_errors);
  LONGS_EQUAL(0, report().sync_losses);
  next_of(kNullPid);
  for (int i = 0; i < 3; ++i) {
    packet[0] = std::byte{0};
    pass();
  }
  LONGS_EQUAL(4, report().sync_byte_errors);
  LONGS_EQUAL(1, report().sync_losses);
  // Sync is back after five good packets, and lost again after two bad ones.
  packet[0] = std::byte{kTsSync};
  for (int i = 0; i < 4; ++i) pass();
  packet[0] = std::byte{0};
  pass();
  pass();
  LONGS_EQUAL(1, report().sync_losses);
  packet[0] = std::byte{kTsSync};
  for (int i = 0; i < 5; ++i) pass();
  packet[0] = std::byte{0};
  pass();
  pass();
  LONGS_EQUAL(2, report().sync_losses);
}

TEST(TsInspector, Continuity) {
  run(1000 * kMs);
  next_of(TsGenerator::kVideoPid);  // this packet is lost
  run(100 * kMs);
  LONGS_EQUAL(1, report().continuity_errors);
  LONGS_EQUAL(0, faults(1));
  next_of(TsGenerator::kVideoPid);
  pass();
  pass();  // one repetition is allowed
  LONGS_EQUAL(1, report().continuity_errors);
  pass();
  LONGS_EQUAL(2, report().continuity_errors);
  run(100 * kMs);
  LONGS_EQUAL(2, report().continuity_errors);
  // The layer below reports the loss.
  next_of(TsGenerator::kVideoPid);
  inspector->forgive_gap();
  run(100 * kMs);
  LONGS_EQUAL(0, faults(2));
}

TEST(TsInspector, ASectionDoesNotGoOnBehindAForgivenGap) {
  TsMux mux;
  std::vector<MadeProgram> programs(60);
  for (uint16_t i = 0; i < 60; ++i) {
    programs[i].number = static_cast<uint16_t>(i + 1);
    programs[i].pid = static_cast<uint16_t>(0x100 + i);
  }
  const Bytes before = mux.table(kPatPid, made_pat(programs, {.version = 1}));
  const Bytes behind = mux.table(kPatPid, made_pat(programs, {.version = 2}));
  LONGS_EQUAL(2 * kTsPacketBytes, behind.size());
  inspector->inspect(std::span(before).first(kTsPacketBytes), now);
  inspector->forgive_gap();
  inspector->inspect(std::span(behind).subspan(kTsPacketBytes), now);
  LONGS_EQUAL(0, faults());
}

TEST(TsInspector, Discontinuity) {
  // An adaptation field of one byte of flags: discontinuity_indicator.
  const auto make = [&](uint8_t counter, uint8_t flags) {
    std::fill_n(packet, kTsPacketBytes, std::byte{0xFF});
    store_u8(packet, kTsSync);
    store_u16(packet + 1, 0x55);
    store_u8(packet + 3, 0x30U | counter);
    store_u8(packet + 4, 1);
    store_u8(packet + 5, flags);
    pass();
  };
  make(1, 0);
  make(2, 0);
  make(9, 0x80);
  make(10, 0);
  LONGS_EQUAL(0, report().continuity_errors);
  make(12, 0);
  LONGS_EQUAL(1, report().continuity_errors);
}

TEST(TsInspector, Tables) {
  run(1000 * kMs);
  LONGS_EQUAL(0, faults());
  LONGS_EQUAL(1, report().programs);
  const auto run_without = [&](uint16_t pid, uint64_t ns) {
    const uint64_t until = now + ns;
    while (now < until) {
      if (next().pid != pid) pass();
    }
  };
  run_without(kPatPid, 700 * kMs);
  LONGS_EQUAL(1, report().pat_errors);
  LONGS_EQUAL(0, faults(1));
  run(1000 * kMs);
  run_without(TsGenerator::kPmtPid, 700 * kMs);
  LONGS_EQUAL(1, report().pmt_errors);
  run(1000 * kMs);
  const uint64_t continuity = report().continuity_errors;  // of both tables, when they come again
  LONGS_EQUAL(2, continuity);
  next_of(kPatPid);
  packet[21] ^= std::byte{1};
  pass();
  run(1000 * kMs);
  LONGS_EQUAL(0, report().crc_errors);  // the changed byte is behind the section
  next_of(kPatPid);
  packet[6] = std::byte{0xB0};
  packet[13] ^= std::byte{1};
  pass();
  LONGS_EQUAL(1, report().crc_errors);
  next_of(kPatPid);
  packet[3] |= std::byte{0x80};
  pass();
  LONGS_EQUAL(2, report().pat_errors);
  next_of(TsGenerator::kPmtPid);
  packet[3] |= std::byte{0x80};
  pass();
  LONGS_EQUAL(2, report().pmt_errors);
  next_of(kPatPid);
  store_u8(packet + 5, 0x42);
  store_u32(packet + 5 + 12, section_crc({packet + 5, 12}));
  pass();
  LONGS_EQUAL(3, report().pat_errors);
  LONGS_EQUAL(0, faults(3 + 2 + 1 + continuity));
}

TEST(TsInspector, APidThatDoesNotComeAnyMore) {
  run(1000 * kMs);
  const uint64_t until = now + 5200 * kMs;
  while (now < until) {
    if (next().pid != TsGenerator::kVideoPid) pass();
  }
  LONGS_EQUAL(1, report().pid_errors);
  LONGS_EQUAL(0, faults(1));
}

TEST(TsInspector, NothingComesAnyMore) {
  run(1000 * kMs);
  inspector->look_for_missing(now + 600 * kMs);
  inspector->look_for_missing(now + 6000 * kMs);
  inspector->look_for_missing(now + 60'000 * kMs);
  LONGS_EQUAL(1, report().pat_errors);
  LONGS_EQUAL(1, report().pmt_errors);
  LONGS_EQUAL(1, report().pid_errors);
}

TEST(TsInspector, TransportErrors) {
  run(100 * kMs);
  next_of(kNullPid);
  packet[1] |= std::byte{0x80};
  pass();
  LONGS_EQUAL(1, report().transport_errors);
  LONGS_EQUAL(0, faults(1));
}

TEST(TsInspector, Clocks) {
  run(1000 * kMs);
  const uint64_t before = report().pcr_interval_max_ns;
  CHECK(before > 20 * kMs && before < 30 * kMs);
  CHECK(report().pcr_accuracy_max_ns < 500);
  // A PCR that is 10 us too high is wrong, and so is the next one, in the other direction.
  TsPacket parsed = next();
  for (; !parsed.has_pcr; parsed = next()) pass();
  const uint64_t wrong = parsed.pcr + 270;
  store_u32(packet + 6, wrong / 300 >> 1);
  store_u16(packet + 10, (wrong / 300 & 1) << 15 | 0x7E00 | wrong % 300);
  pass();
  run(100 * kMs);
  DOUBLES_EQUAL(20'000, static_cast<double>(report().pcr_accuracy_max_ns), 1000);
  LONGS_EQUAL(0, report().pcr_discontinuities);
  // 120 ms without a PCR.
  const uint64_t until = now + 120 * kMs;
  while (now < until) {
    parsed = next();
    if (parsed.has_pcr) store_u8(packet + 5, 0);
    pass();
  }
  run(100 * kMs);
  LONGS_EQUAL(1, report().pcr_discontinuities);
}

TEST(TsInspector, APcrThatComesTwiceIsNoDiscontinuity) {
  run(1000 * kMs);
  const uint64_t rate = report().bits_per_second;
  for (uint32_t i = 0; i < 10; ++i) {
    TsPacket parsed = next();
    for (; !parsed.has_pcr; parsed = next()) pass();
    pass();
    if (parsed.has_payload) pass();  // one repetition is allowed
    // The same PCR in a packet of its own, without payload.
    std::byte clock[kTsPacketBytes];
    std::copy_n(packet, kTsPacketBytes, clock);
    store_u8(clock + 3, (load_u8(clock + 3) & 0x0F) | 0x20U);
    store_u8(clock + 4, 183);
    inspector->inspect(clock, now);
    run(100 * kMs);
  }
  LONGS_EQUAL(0, faults());
  DOUBLES_EQUAL(static_cast<double>(rate), static_cast<double>(report().bits_per_second), 1e4);
}

TEST(TsInspector, APcrWithAnExtensionOver299IsIgnored) {
  const Bytes made = TsMux().plain(0x100, kPcrModulus - 1);
  std::copy(made.begin(), made.end(), packet);
  TsPacket parsed;
  CHECK(parse_ts(packet, &parsed) && parsed.has_pcr);
  CHECK_EQUAL(kPcrModulus - 1, parsed.pcr);
  store_u16(packet + 10, load_u16(packet + 10) + 1);  // the extension is 300
  CHECK(parse_ts(packet, &parsed));
  CHECK_FALSE(parsed.has_pcr);
}

TEST(TsInspector, AdaptationFieldsThatAreTooLong) {
  TsPacket parsed;
  next_of(TsGenerator::kVideoPid);
  store_u8(packet + 3, 0x30);
  store_u8(packet + 4, 183);
  CHECK(!parse_ts(packet, &parsed));
  store_u8(packet + 3, 0x20);
  CHECK(parse_ts(packet, &parsed));
  LONGS_EQUAL(188, parsed.payload_offset);
  store_u8(packet + 4, 6);
  store_u8(packet + 5, 0x10);
  CHECK(!parse_ts(packet, &parsed));  // too short for its PCR
  store_u8(packet + 4, 0);
  CHECK(parse_ts(packet, &parsed));
}

TEST(TsInspector, SectionsOverSeveralPackets) {
  // A PAT of 100 programs, in several packets. 32 programs are watched.
  std::vector<std::byte> section(8 + 400 + 4);
  store_u8(section.data(), 0);
  store_u16(section.data() + 1, 0xB000 | (section.size() - 3));
  store_u8(section.data() + 5, 0xC1);
  for (uint32_t i = 0; i < 100; ++i) {
    store_u16(section.data() + 8 + 4 * i, i + 1);
    store_u16(section.data() + 10 + 4 * i, 0xE100U + i);
  }
  store_u32(section.data() + section.size() - 4,
            section_crc(std::span(section).first(section.size() - 4)));
  std::span<const std::byte> rest = section;
  for (uint8_t counter = 0; !rest.empty(); ++counter) {
    std::fill_n(packet, kTsPacketBytes, std::byte{0xFF});
    store_u8(packet, kTsSync);
    store_u16(packet + 1, counter == 0 ? 0x4000 : 0);
    store_u8(packet + 3, 0x10U | counter);
    const size_t head = counter == 0 ? 5 : 4;
    if (counter == 0) store_u8(packet + 4, 0);
    const size_t bytes = std::min(rest.size(), kTsPacketBytes - head);
    std::copy_n(rest.data(), bytes, packet + head);
    rest = rest.subspan(bytes);
    pass();
  }
  LONGS_EQUAL(32, report().programs);
  LONGS_EQUAL(0, faults());
}
