#include "platform/nontemporal_copy.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr size_t kLinesMax = 9;
constexpr size_t kBytesMax = kLinesMax * kCacheLineBytes;

struct alignas(kCacheLineBytes) CopyTarget {
  std::byte before[kCacheLineBytes];
  std::byte bytes[kBytesMax + kCacheLineBytes];
};

}  // namespace

TEST_GROUP(NontemporalCopy) {
  alignas(kCacheLineBytes) std::byte from[kBytesMax + kCacheLineBytes];
  CopyTarget target;

  void setup() override {
    for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  }
};

// Copies from each alignment, and writes nothing outside the lines.
TEST(NontemporalCopy, CopiesWholeLines) {
  for (size_t lines = 0; lines <= kLinesMax; ++lines) {
    const size_t bytes = lines * kCacheLineBytes;
    for (size_t at = 0; at < kCacheLineBytes; ++at) {
      std::fill_n(reinterpret_cast<std::byte*>(&target), sizeof target, std::byte{0xee});
      copy_nontemporal(target.bytes, from + at, bytes);
      fence_nontemporal();
      MEMCMP_EQUAL(from + at, target.bytes, bytes);
      const auto is_untouched = [](std::byte each) { return each == std::byte{0xee}; };
      CHECK(std::all_of(target.before, target.bytes, is_untouched));
      CHECK(std::all_of(target.bytes + bytes, std::end(target.bytes), is_untouched));
    }
  }
}

TEST(NontemporalCopy, KnowsWholeLines) {
  CHECK(is_whole_lines(from, 64));
  CHECK(is_whole_lines(from + 64, 192));
  CHECK_FALSE(is_whole_lines(from + 16, 64));
  CHECK_FALSE(is_whole_lines(from, 65));
  CHECK_FALSE(is_whole_lines(from, 32));
}

TEST(NontemporalCopy, DebugBuildsKnowWhetherTheFenceIsDue) {
  CHECK_FALSE(is_nontemporal_fence_due);
  copy_nontemporal(target.bytes, from, kCacheLineBytes);
  CHECK_EQUAL(BP_DEBUG == 1, is_nontemporal_fence_due);
  fence_nontemporal();
  CHECK_FALSE(is_nontemporal_fence_due);
}

// A reader that is notified after the fence sees each line whole.
TEST(NontemporalCopy, WhatIsToldBehindTheFenceIsThere) {
  constexpr uint32_t kRounds = 20'000;
  std::atomic<uint32_t> told{0}, seen{0};
  uint32_t wrong_count = 0;
  std::thread reader([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      while (told.load(std::memory_order_acquire) != round) std::this_thread::yield();
      for (size_t i = 0; i < kBytesMax; ++i) {
        wrong_count += target.bytes[i] == static_cast<std::byte>(round) ? 0 : 1;
      }
      seen.store(round, std::memory_order_release);
    }
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    std::fill_n(from, kBytesMax, static_cast<std::byte>(round));
    copy_nontemporal(target.bytes, from, kBytesMax);
    fence_nontemporal();
    told.store(round, std::memory_order_release);
    while (seen.load(std::memory_order_acquire) != round) std::this_thread::yield();
  }
  reader.join();
  CHECK_EQUAL(0, wrong_count);
}
