#include "platform/read_once.h"

#include <array>
#include <atomic>
#include <cstring>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

template <size_t kBytes>
using Bytes = std::array<std::byte, kBytes>;

// Copies from each alignment, and writes nothing outside the copy.
template <size_t kBytes>
void check_copies() {
  alignas(8) std::byte from[kBytes + 16];
  for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (size_t at = 0; at < 8; ++at) {
    struct {
      std::byte before[8] = {};
      Bytes<kBytes> copy;
      std::byte behind[8] = {};
    } target;
    target.copy = read_once<Bytes<kBytes>>(from + at);
    MEMCMP_EQUAL(from + at, target.copy.data(), kBytes);
    for (size_t i = 0; i < 8; ++i) CHECK(target.before[i] == std::byte{0});
    for (size_t i = 0; i < 8; ++i) CHECK(target.behind[i] == std::byte{0});
  }
}

// A range that a peer describes in shared memory. The reader copies it, checks the copy, and uses
// the copy.
struct Range {
  uint64_t first;
  uint64_t count;
};
constexpr uint64_t kLimit = 1000;

// Not inlined, so that the compiler sees the check and the use, but not the stores to the range.
[[gnu::noinline]] uint64_t end_if_good(const Range* shared) noexcept {
  const auto range = read_once<Range>(shared);
  if (range.first > kLimit || range.count > kLimit - range.first) return 0;
  return range.first + range.count;
}

}  // namespace

TEST_GROUP(ReadOnce){};

TEST(ReadOnce, CopiesAnySizeFromAnyAlignment) {
  check_copies<4>();
  check_copies<8>();
  check_copies<12>();
  check_copies<40>();
  check_copies<56>();
  check_copies<64>();
  check_copies<132>();
}

// The writer is a process, not a thread, so that its stores are no data race in this program.
TEST(ReadOnce, WhatWasCheckedIsWhatIsUsed) {
  struct Shared {
    std::atomic<uint64_t> round;
    Range range;
  };
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  auto* shared = static_cast<Shared*>(memory);
  const pid_t writer = fork();
  if (writer == 0) {
    auto& range = const_cast<volatile Range&>(shared->range);
    for (uint64_t round = 1;; ++round) {
      range.first = round % 2 == 0 ? 1 : UINT64_MAX - round % 64;
      range.count = round % 3 == 0 ? 500 : UINT64_MAX / 2;
      shared->round.store(round, std::memory_order_relaxed);
    }
  }
  uint64_t good_count = 0;
  bool is_good = true;
  // Runs until the writer has made a million rounds, not for a fixed time.
  while (shared->round.load(std::memory_order_relaxed) < 1'000'000 || good_count == 0) {
    const uint64_t end = end_if_good(&shared->range);
    is_good = is_good && end <= kLimit;
    good_count += end != 0;
  }
  kill(writer, SIGKILL);
  waitpid(writer, nullptr, 0);
  munmap(memory, 4096);
  CHECK(is_good);
}
