// Load meant to break the heap. Two programs in one; each ends with a line that scripts/check.sh
// counts:
//
//   heap_soak exhaustion ROUNDS   four threads that stay alive fill the heap until the smallest
//                                 request is refused, in sizes from 8 B to 64 MiB, then free
//                                 everything: the largest block available afterwards stays the same
//                                 as after the first round
//   heap_soak demand SECONDS      irregular demand by four threads, in rounds of a second: whenever
//                                 only the same live set is left, the heap uses the same memory
//
// A round frees blocks that the same thread or another thread has allocated, in turn. The threads
// sleep during the search for the largest block: the heap must find memory that an idle thread
// keeps, or that others freed for it. Every block is written and verified.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "alloc/heap_owner.h"
#include "platform/clock.h"
#include "platform/units.h"

using namespace bedplate;

namespace {

constexpr unsigned kThreadCount = 4;
constexpr size_t kSmallest = 8;
constexpr unsigned kLargestLog2 = 26;
constexpr uint64_t kSeed = 20'261'121;

// xorshift64*: the same demand in every run.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545'F491'4F6C'DD1D;
  }
  uint64_t below(uint64_t bound) noexcept { return next() % bound; }
  // Every power of two is as likely as any other, and within it every size.
  size_t size(size_t largest) noexcept {
    const unsigned log2 = 3 + static_cast<unsigned>(below(kLargestLog2 - 3 + 1));
    const size_t bytes = (size_t{1} << log2) + below(size_t{1} << log2);
    return bytes <= largest ? bytes : kSmallest + below(largest - kSmallest + 1);
  }

 private:
  uint64_t state_;
};

[[noreturn]] void fail(const char* what) {
  std::printf("FAILED: %s\n0 passed, 1 failed, 0 skipped\n", what);
  std::fflush(stdout);
  _exit(1);
}

// A block holds its neighbour in its list; larger ones also their size, at both ends.
struct Block {
  Block* next;
  size_t bytes;
};

// Writes and reads what shows that a block is still the one that it was.
void mark(Block* block, size_t bytes) noexcept {
  block->bytes = bytes;
  std::memcpy(reinterpret_cast<char*>(block) + bytes - sizeof bytes, &bytes, sizeof bytes);
}
void verify(const Block* block) noexcept {
  size_t at_end = 0;
  std::memcpy(&at_end, reinterpret_cast<const char*>(block) + block->bytes - sizeof at_end,
              sizeof at_end);
  if (at_end != block->bytes) fail("a block was written by somebody else");
}
constexpr size_t kMarkable = 2 * sizeof(Block);

// Blocks in many lists, so that they are freed in another order than they were taken in.
class Blocks {
 public:
  bool add(size_t bytes, Random& random) noexcept {
    auto* block = static_cast<Block*>(std::malloc(bytes));
    if (block == nullptr) return false;
    block->next = nullptr;
    if (bytes >= kMarkable) mark(block, bytes);
    Block** list = &lists_[(bytes >= kMarkable ? 0 : kListCount) + random.below(kListCount)];
    block->next = *list;
    *list = block;
    bytes_ += bytes;
    return true;
  }

  void free_all() noexcept {
    for (size_t i = 0; i < 2 * kListCount; ++i) {
      while (Block* block = lists_[i]) {
        lists_[i] = block->next;
        if (i < kListCount) verify(block);
        std::free(block);
      }
    }
    bytes_ = 0;
  }

  size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr size_t kListCount = 64;
  Block* lists_[2 * kListCount] = {};
  size_t bytes_ = 0;
};

struct Crowd {
  pthread_barrier_t barrier;
  Blocks blocks[kThreadCount];
  size_t filled_bytes[kThreadCount] = {};
  pid_t tids[kThreadCount] = {};
  unsigned shift = 0;  // whose blocks a thread frees: its own, or those of the shift-th next
  std::atomic<bool> is_round_over{false};
  std::atomic<bool> is_over{false};
  pthread_t threads[kThreadCount] = {};
};
Crowd crowd;

void wait() { pthread_barrier_wait(&crowd.barrier); }

void start(void* (*run)(void*)) {
  pthread_barrier_init(&crowd.barrier, nullptr, kThreadCount + 1);
  for (uintptr_t i = 0; i < kThreadCount; ++i) {
    if (pthread_create(&crowd.threads[i], nullptr, run, reinterpret_cast<void*>(i)) != 0) {
      fail("no thread");
    }
  }
}

void finish() {
  crowd.is_over = true;
  wait();
  for (pthread_t thread : crowd.threads) pthread_join(thread, nullptr);
}

bool is_asleep(pid_t tid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/syscall", static_cast<int>(tid));
  char first = 0;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const bool is_read = fd >= 0 && read(fd, &first, 1) == 1;
  if (fd >= 0) close(fd);
  if (!is_read) fail("/proc does not tell whether a thread sleeps");
  return first >= '0' && first <= '9';
}

void wait_until_asleep() {
  const uint64_t deadline_ns = monotonic_ns() + 60 * kNsPerSecond;
  for (const pid_t tid : crowd.tids) {
    while (!is_asleep(tid)) {
      if (monotonic_ns() > deadline_ns) fail("a thread that waits does not sleep");
      sched_yield();
    }
  }
}

void fill(Blocks& blocks, Random& random) {
  for (size_t largest = size_t{1} << kLargestLog2; largest >= kSmallest;) {
    const size_t bytes = random.size(largest);
    if (!blocks.add(bytes, random)) largest = bytes > kSmallest ? bytes - 1 : 0;
  }
}

void* exhaust(void* argument) {
  const auto self = static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument));
  Random random(kSeed + self);
  crowd.tids[self] = gettid();
  for (;;) {
    wait();
    if (crowd.is_over) return nullptr;
    fill(crowd.blocks[self], random);
    crowd.filled_bytes[self] = crowd.blocks[self].bytes();
    wait();
    crowd.blocks[(self + crowd.shift) % kThreadCount].free_all();
    wait();
  }
}

size_t largest_block() {
  size_t good = 0;
  size_t bad = size_t{1} << 40;
  while (bad - good > kMiB) {
    const size_t middle = good + (bad - good) / 2;
    void* volatile block = std::malloc(middle);
    (block != nullptr ? good : bad) = middle;
    std::free(block);
  }
  return good;
}

int run_exhaustion(unsigned rounds) {
  start(&exhaust);
  size_t first = 0;
  unsigned failed = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    crowd.shift = round % kThreadCount;
    wait();
    wait();
    size_t filled = 0;
    for (const size_t bytes : crowd.filled_bytes) filled += bytes;
    wait();
    wait_until_asleep();
    const size_t largest = largest_block();
    if (round == 0) first = largest;
    const bool good = largest >= first / 100 * 95;
    std::printf("round %2u: filled with %4zu MiB, the largest block afterwards %4zu MiB%s\n", round,
                filled / kMiB, largest / kMiB, good ? "" : "  FAILED");
    failed += good ? 0 : 1;
  }
  finish();
  std::printf("%u passed, %u failed, 0 skipped\n", rounds - failed, failed);
  return failed == 0 ? 0 : 1;
}

// The demand soak. Blocks lie in slots that all threads share, so most are freed by another thread
// than took them. The first slots are the live set: each always holds a block of the same size,
// which is replaced by a new one again and again. The others are empty at the end of each round.
constexpr size_t kLiveCount = 1 << 13;
constexpr size_t kSlotCount = 1 << 14;
constexpr unsigned kLiveLargestLog2 = 15;
std::atomic<Block*> slots[kSlotCount];
size_t live_sizes[kLiveCount];

void replace(size_t slot, Block* block) noexcept {
  Block* old = slots[slot].exchange(block);
  if (old == nullptr) return;
  verify(old);
  std::free(old);
}

Block* take(size_t bytes) noexcept {
  auto* block = static_cast<Block*>(std::malloc(bytes));
  if (block != nullptr) mark(block, bytes);
  return block;
}

// One burst of demand: sizes up to one of its own, and as much as there is of it.
void demand(Random& random) noexcept {
  const size_t largest = size_t{1} << (6 + random.below(kLargestLog2 - 6));
  for (uint64_t count = random.below(4096); count > 0; --count) {
    replace(kLiveCount + random.below(kSlotCount - kLiveCount),
            take(kMarkable + random.size(largest)));
    const size_t live = random.below(kLiveCount);
    if (Block* block = take(live_sizes[live])) replace(live, block);
  }
  // Asleep, its heap is anybody's.
  if (random.below(4) == 0) usleep(static_cast<useconds_t>(random.below(2000)));
}

void* be_irregular(void* argument) {
  const auto self = static_cast<unsigned>(reinterpret_cast<uintptr_t>(argument));
  Random random(kSeed + self);
  crowd.tids[self] = gettid();
  for (;;) {
    wait();
    if (crowd.is_over) return nullptr;
    while (!crowd.is_round_over) demand(random);
    wait();
    for (size_t i = kLiveCount; i < kSlotCount; ++i) replace(i, nullptr);
    wait();
  }
}

size_t make_live_set() {
  Random random(kSeed);
  size_t bytes = 0;
  for (size_t i = 0; i < kLiveCount; ++i) {
    live_sizes[i] = kMarkable + random.size(size_t{1} << (4 + random.below(kLiveLargestLog2 - 3)));
    Block* block = take(live_sizes[i]);
    if (block == nullptr) fail("the live set does not fit into the heap");
    replace(i, block);
    bytes += live_sizes[i];
  }
  return bytes;
}

// The bytes that the heap uses once threads have returned all that they can: a request that cannot
// be met makes them.
size_t used_bytes() {
  void* volatile block = std::malloc(size_t{1} << 40);
  if (block != nullptr) fail("a heap of 256 MiB gave 1 TiB");
  size_t used = 0;
  for (uint32_t i = 0; i < heap_owner_count(); ++i) used += heap_owner_use({i}).used_bytes;
  return used;
}

int run_demand(unsigned seconds) {
  const size_t live = make_live_set();
  std::printf("a live set of %zu MiB, at first in %zu MiB\n", live / kMiB, used_bytes() / kMiB);
  start(&be_irregular);
  size_t sums[2] = {};  // of what is used after each round: first half, second half
  const unsigned rounds = seconds & ~1U;
  for (unsigned round = 0; round < rounds; ++round) {
    crowd.is_round_over = false;
    wait();
    usleep(900'000);
    crowd.is_round_over = true;
    wait();
    wait();
    wait_until_asleep();
    const size_t used = used_bytes();
    sums[round < rounds / 2 ? 0 : 1] += used;
    std::printf("second %4u: in %3zu MiB\n", round, used / kMiB);
  }
  finish();
  // The positions of the surviving blocks are chance; this averages out over many rounds.
  const size_t noise_percent = rounds >= 600 ? 10 : 35;
  const bool good = sums[1] <= sums[0] / 100 * (100 + noise_percent);
  std::printf("on average %zu MiB in the first half, %zu MiB in the second\n",
              sums[0] / (rounds / 2) / kMiB, sums[1] / (rounds / 2) / kMiB);
  std::printf("%d passed, %d failed, 0 skipped\n", good, !good);
  return good ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 256);
  const unsigned figure = count == 3 ? static_cast<unsigned>(std::atoi(arguments[2])) : 0;
  if (count == 3 && std::strcmp(arguments[1], "exhaustion") == 0) return run_exhaustion(figure);
  if (count == 3 && std::strcmp(arguments[1], "demand") == 0) return run_demand(figure);
  std::fprintf(stderr, "usage: heap_soak exhaustion ROUNDS | heap_soak demand SECONDS\n");
  return 2;
}
