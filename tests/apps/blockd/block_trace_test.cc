// A block server's trace ring: its records of requests, in every variant of the server.
#include <algorithm>
#include <string>
#include <string_view>

#include "tests/apps/blockd/block_server_fixture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

class BlockTraceTest : public BlockServerFixture {
 public:
  // `volume`: the index of the volume `name`.
  void stations_follow_one_another(std::string_view name, uint16_t volume) {
    const uint16_t kinds[] = {kWrite, kWrite, kRead, kTrim, kWriteZeroes, kFlush};
    const uint32_t lengths[] = {300'000, 100, 4096, 4096, 100'000, 0};
    {
      NbdPeer peer = negotiated(true, name);
      for (size_t i = 0; i < std::size(kinds); ++i) {
        const std::string payload(kinds[i] == kWrite ? lengths[i] : 0, 'x');
        LONGS_EQUAL(0, peer.do_one(kinds[i], 0, lengths[i], payload));
      }
    }
    CHECK(rig->stop());
    for (size_t i = 0; i < std::size(kinds); ++i) {
      const TraceRecord& record = rig->trace_records[i];
      CHECK_EQUAL(i + 1, record.number);
      LONGS_EQUAL(kinds[i], record.kind);
      CHECK_EQUAL(lengths[i], record.bytes);
      LONGS_EQUAL(volume, record.subject);
      LONGS_EQUAL(0, record.source);
      CHECK(record.begin_ns > 0);
      CHECK(record.passed[kSent - 1] < kNsPerSecond * 200 >> kTraceStepLog2);
      // Only writes are granted a destination: the large one always, the small one unless its
      // payload came with its header.
      CHECK(kinds[i] == kWrite || record.passed[kGranted - 1] == kTraceNotPassed);
      CHECK(i > 0 || record.passed[kGranted - 1] <= record.passed[kQueued - 1]);
      for (uint32_t station = kBegun; station <= kSent; ++station) {
        CHECK(record.passed[station - 2] <= record.passed[station - 1]);
      }
    }
    CHECK_EQUAL(0, rig->trace_records[std::size(kinds)].number);
  }

  void what_was_refused_was_nowhere_else() {
    {
      NbdPeer peer = negotiated();
      CHECK(peer.do_one(kRead, kVolumeBytes, 512) != 0);
    }
    CHECK(rig->stop());
    const TraceRecord& record = rig->trace_records[0];
    CHECK_EQUAL(1, record.number);
    for (uint32_t station = kGranted; station <= kDone; ++station) {
      CHECK_EQUAL(kTraceNotPassed, record.passed[station - 1]);
    }
    CHECK(record.passed[kAnswered - 1] <= record.passed[kSent - 1]);
    CHECK(record.passed[kSent - 1] != kTraceNotPassed);
  }
};

}  // namespace

BP_BLOCK_SERVER_GROUPS(BlockTrace, BlockTraceTest)

BP_ALL_VARIANTS(BlockTrace, StationsFollowOneAnother, , stations_follow_one_another("ram0", 0))
BP_ALL_VARIANTS(BlockTrace, StationsOfAStoreFollowOneAnother, add_stored_volume(),
                stations_follow_one_another("disk0", 2))
BP_ALL_VARIANTS(BlockTrace, WhatWasRefusedWasNowhereElse, , what_was_refused_was_nowhere_else())
