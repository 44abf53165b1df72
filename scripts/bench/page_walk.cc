// The same random walk over 512 MiB twice: in a segment of the pool (pages of 2 MiB), and in a
// block of the C library's malloc. The pages are the only difference.
//
// Each step loads the address of the next step from its cache line, so steps neither overlap nor
// are predicted. One run prints one round: lines of a name and a figure, or "error" and the
// system's message.
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <vector>

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/cache_line.h"
#include "platform/file.h"
#include "platform/log.h"

using namespace bedplate;

namespace {

constexpr uint64_t kWalkBytes = 512 * kMiB;
constexpr uint64_t kStepCount = 2'000'000;

struct alignas(kCacheLineBytes) Stone {
  Stone* next;
};
constexpr size_t kStoneCount = kWalkBytes / sizeof(Stone);

// dTLB load misses of this thread in user space.
Fd open_counter() {
  perf_event_attr attributes = {};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HW_CACHE;
  attributes.config = PERF_COUNT_HW_CACHE_DTLB | (PERF_COUNT_HW_CACHE_OP_READ << 8) |
                      (PERF_COUNT_HW_CACHE_RESULT_MISS << 16);
  attributes.disabled = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  return Fd(static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0)));
}

// One cycle through all stones (Sattolo's shuffle): `order[i]` follows i.
std::vector<uint32_t> make_order() {
  std::mt19937_64 random(std::random_device{}());
  std::vector<uint32_t> order(kStoneCount);
  std::iota(order.begin(), order.end(), 0U);
  for (size_t i = kStoneCount - 1; i > 0; --i) std::swap(order[i], order[random() % i]);
  return order;
}

void lay(Stone* stones, const std::vector<uint32_t>& order) {
  for (size_t i = 0; i < kStoneCount; ++i) stones[i].next = &stones[order[i]];
}

// This thread's processor time, without other programs on the machine.
double processor_ns() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void walk(const char* name, const Stone* stone, const Fd& counter) {
  if (counter.is_open()) {
    ioctl(counter.number(), PERF_EVENT_IOC_RESET, 0);
    ioctl(counter.number(), PERF_EVENT_IOC_ENABLE, 0);
  }
  const double began = processor_ns();
  for (uint64_t i = 0; i < kStepCount; ++i) stone = stone->next;
  const double took_ns = processor_ns() - began;
  if (counter.is_open()) ioctl(counter.number(), PERF_EVENT_IOC_DISABLE, 0);
  asm volatile("" : : "r"(stone));  // keeps the walk's result alive
  std::printf("%s_ns %.2f\n", name, took_ns / static_cast<double>(kStepCount));
  uint64_t misses = 0;
  if (counter.is_open() && read(counter.number(), &misses, sizeof misses) == sizeof misses) {
    std::printf("%s_misses %.4f\n", name,
                static_cast<double>(misses) / static_cast<double>(kStepCount));
  }
}

// Prints how much of this process is on transparent hugepages.
void print_transparent_hugepages() {
  char text[4096];
  uint64_t kib = 0;
  if (!read_text_file("/proc/self/smaps_rollup", text, sizeof text).ok()) return;
  const char* line = std::strstr(text, "AnonHugePages:");
  if (line != nullptr && std::sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1) {
    std::printf("transparent_mib %" PRIu64 "\n", kib / 1024);
  }
}

}  // namespace

int main() {
  auto made = process_pool().create_segment("walk", kWalkBytes, PageSize::k2MiB, 1);
  if (!made.ok()) {
    log_error(made.error());
    return 1;
  }
  auto* in_pool = reinterpret_cast<Stone*>(made.value()->address);
  auto* ordinary = static_cast<Stone*>(std::aligned_alloc(alignof(Stone), kWalkBytes));
  if (ordinary == nullptr) return std::perror("page_walk: malloc"), 1;
  {
    const std::vector<uint32_t> order = make_order();
    lay(in_pool, order);
    lay(ordinary, order);
  }
  const Fd counter = open_counter();
  if (!counter.is_open()) std::printf("error %s\n", std::strerror(errno));
  walk("pool", in_pool, counter);
  walk("ordinary", ordinary, counter);
  print_transparent_hugepages();
}
