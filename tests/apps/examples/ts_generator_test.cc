// The inspector finds no fault in the generated stream.
#include "apps/examples/ts_generator.h"

#include <memory>

#include "apps/tsrelay/ts_inspector_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::relay;

TEST_GROUP(TsGenerator) {
  std::unique_ptr<TsGenerator> generator = std::make_unique<TsGenerator>();
  std::unique_ptr<TsInspector> inspector = std::make_unique<TsInspector>();
};

TEST(TsGenerator, AStreamWithoutFault) {
  for (const uint64_t rate : {1'000'000, 4'000'000, 20'000'000}) {
    generator = std::make_unique<TsGenerator>(rate);
    inspector = std::make_unique<TsInspector>();
    const uint64_t count = rate * 7 / (188 * 8);  // seven seconds
    for (uint64_t i = 0; i < count; ++i) {
      std::byte packet[kTsPacketBytes];
      generator->next(packet);
      inspector->inspect(packet, 1 + generator->ns_of(i));
    }
    const TsReport& report = inspector->report();
    LONGS_EQUAL(count, report.packets);
    LONGS_EQUAL(0, report.sync_byte_errors + report.sync_losses + report.continuity_errors);
    LONGS_EQUAL(0, report.pat_errors + report.pmt_errors + report.pid_errors + report.crc_errors);
    LONGS_EQUAL(0, report.pcr_discontinuities + report.transport_errors);
    LONGS_EQUAL(1, report.programs);
    CHECK(report.pcr_interval_max_ns < 40'000'000);
    CHECK(report.pcr_accuracy_max_ns < 500);
    DOUBLES_EQUAL(static_cast<double>(rate), static_cast<double>(report.bits_per_second),
                  static_cast<double>(rate) / 1000);
  }
}

TEST(TsGenerator, NullPacketsBearTheirNumber) {
  for (uint32_t i = 0; i < 20'000; ++i) {
    std::byte packet[kTsPacketBytes];
    generator->next(packet);
    TsPacket parsed;
    CHECK(parse_ts(packet, &parsed));
    if (parsed.pid == kNullPid) LONGS_EQUAL(i, load_u32(packet + 8));
  }
}
