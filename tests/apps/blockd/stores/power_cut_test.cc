// Promised data survive a power cut at any moment. The test also detects three defects of a store
// that break the promise.
#include <algorithm>
#include <random>
#include <vector>

#include "tests/apps/blockd/stores/store_queue_fixture.h"
#include "tests/support/seed.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;
using nbd::Command;
using nbd::ErrorCode;
using Defect = MadeUpStore::Defect;

namespace {

constexpr uint32_t kSlotCount = 32;  // slots share blocks
constexpr uint32_t kSlotBytes = 700;

// The values that a slot may hold after a power cut: the last durable one, and all written since.
struct Slot {
  std::vector<uint8_t> since = {0};  // the first one is durable
};

}  // namespace

TEST_GROUP_BASE(PowerCut, StoreQueueFixture){
    // Sends random writes and flushes, one at a time, so that the promised data are known; then
    // cuts the power. Returns whether all promised data are there afterwards.
    bool survives(std::mt19937_64 & random,
                  Defect defect){std::fill(store->seen.begin(), store->seen.end(), std::byte{0});
store->durable = store->seen;
store->defect = defect;
std::vector<Slot> slots(kSlotCount);
const uint64_t steps = 20 + random() % 60;
for (uint64_t step = 0; step < steps; ++step) {
  if (random() % 8 == 0) {
    CHECK(do_one(Command::kFlush, 0, 0) == ErrorCode::kNone);
    for (Slot& slot : slots) slot.since = {slot.since.back()};
    continue;
  }
  const uint64_t index = random() % kSlotCount;
  const bool is_fua = random() % 4 == 0;
  const auto fill = static_cast<uint8_t>(1 + random() % 255);
  BlockRequest write = request(Command::kWrite, index * kSlotBytes, kSlotBytes,
                               is_fua ? nbd::kCommandFlagFua : uint16_t{0});
  commit(write, static_cast<std::byte>(fill));
  CHECK(done(write) == ErrorCode::kNone);
  if (is_fua) slots[index].since.clear();
  slots[index].since.push_back(fill);
}
store->cut_power();
for (uint64_t index = 0; index < kSlotCount; ++index) {
  if (!holds(slots[index], index * kSlotBytes)) return false;
}
return true;
}
// Whether each byte of the slot has one of its allowed values. A power cut may leave different
// values in the blocks of one slot.
bool holds(const Slot& slot, uint64_t offset) {
  for (uint64_t i = 0; i < kSlotBytes; ++i) {
    const auto seen = static_cast<uint8_t>(store->seen[offset + i]);
    if (std::find(slot.since.begin(), slot.since.end(), seen) == slot.since.end()) {
      return false;
    }
  }
  return true;
}
uint32_t losses(Defect defect, const test::Seed& seed) {
  std::mt19937_64 random(seed.value());
  uint32_t count = 0;
  for (int cut = 0; cut < 200; ++cut) count += survives(random, defect) ? 0 : 1;
  return count;
}
}
;

TEST(PowerCut, WhatWasPromisedIsThere) {
  const test::Seed seed;
  LONGS_EQUAL_TEXT(0, losses(Defect::kNone, seed), seed.text());
}

TEST(PowerCut, AFlushThatIsNotPassedOnIsFound) {
  const test::Seed seed;
  CHECK_TEXT(losses(Defect::kFlushIsNone, seed) > 0, seed.text());
}

TEST(PowerCut, FuaThatIsIgnoredIsFound) {
  const test::Seed seed;
  CHECK_TEXT(losses(Defect::kDurableIsNone, seed) > 0, seed.text());
}

TEST(PowerCut, AnAnswerBeforeItsTimeIsFound) {
  const test::Seed seed;
  CHECK_TEXT(losses(Defect::kCompletesEarly, seed) > 0, seed.text());
}
