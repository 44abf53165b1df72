// The slot's header word, and the laps that distinguish old bytes from a message.
#include "transport/messages/message_slot.h"

#include <cstddef>
#include <cstdint>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(MessageSlot){};

TEST(MessageSlot, HeaderSurvivesPackingAtEveryLimit) {
  for (uint64_t lap : {uint64_t{0}, uint64_t{1}, kSlotLapMask}) {
    for (uint32_t kind = 0; kind < 8; ++kind) {
      for (uint32_t bytes : {0u, 56u, kSlotBytesMax}) {
        for (uint32_t sender : {0u, kSlotSenderMax}) {
          const uint64_t word = pack_slot(lap, {static_cast<SlotKind>(kind), 255, bytes, sender});
          const SlotHeader header = unpack_slot(word);
          CHECK(slot_lap(word) == lap);
          CHECK(header.kind == static_cast<SlotKind>(kind));
          LONGS_EQUAL(255, header.am);
          LONGS_EQUAL(bytes, header.bytes);
          LONGS_EQUAL(sender, header.sender);
        }
      }
    }
  }
}

TEST(MessageSlot, ZeroedMemoryIsTheLapBeforeTheFirst) {
  LONGS_EQUAL(1, lap_of(0, 4));
  LONGS_EQUAL(0, lap_before(lap_of(0, 4)));
  LONGS_EQUAL(1, lap_of(15, 4));
  LONGS_EQUAL(2, lap_of(16, 4));
}

TEST(MessageSlot, LapsWrapWithoutMeetingTheirNeighbours) {
  const unsigned capacity_log2 = 3;
  const uint64_t index = kSlotLapMask << capacity_log2;
  LONGS_EQUAL(0, lap_of(index, capacity_log2));
  CHECK(lap_before(lap_of(index, capacity_log2)) == kSlotLapMask);
  LONGS_EQUAL(1, lap_of(index + 8, capacity_log2));
}

TEST(MessageSlot, InlineCopyTakesEveryLengthAndNoMore) {
  std::byte from[kInlineBytesMax];
  for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i + 1);
  for (size_t bytes = 0; bytes <= kInlineBytesMax; ++bytes) {
    std::byte to[kInlineBytesMax + 8] = {};
    copy_inline(to, from, bytes);
    MEMCMP_EQUAL(from, to, bytes);
    for (size_t i = bytes; i < sizeof to; ++i) CHECK(to[i] == std::byte{0});
  }
}
