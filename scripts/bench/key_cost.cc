// Measures the cost of a pointer's key: KeyTable::key against the lookup of a registration cache,
// and against the registration that a cache hit saves.
//
// A cache finds the region of an address in a balanced tree by its start, or in a hash by its page.
// Both are measured at their best: without the lock, the use counts and the LRU order that a real
// cache keeps, and for the hash with regions of exactly one of its pages (64 KiB), so that one
// probe suffices. One run prints one round: lines of a name and nanoseconds.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <liburing.h>
#include <sys/mman.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "transport/uring/uring_device.h"

using namespace bedplate;

namespace {

constexpr size_t kPointerCount = size_t{1} << 18;
constexpr int kPassCount = 9;
constexpr uint64_t kAskedBytes = 4 * kKiB;
constexpr uint64_t kSegmentBytes = 16 * kMiB;
constexpr unsigned kCachePageBytesLog2 = 16;
constexpr uint64_t kCachePageBytes = uint64_t{1} << kCachePageBytesLog2;

std::mt19937_64 the_random(std::random_device{}());

struct CachedRegion {
  uint64_t end = 0;
  Key key = kNoKey;
};

KeyedRange covered(const CachedRegion& region, uintptr_t address) {
  if (address >= region.end) return {};
  return {region.key, std::min(kAskedBytes, region.end - address)};
}

class Tree {
 public:
  void add(uintptr_t begin, Key key) { regions_[begin] = {begin + kCachePageBytes, key}; }
  KeyedRange key(uintptr_t address) const {
    auto next = regions_.upper_bound(address);
    return next == regions_.begin() ? KeyedRange{} : covered((--next)->second, address);
  }

 private:
  std::map<uintptr_t, CachedRegion> regions_;
};

class Hash {
 public:
  void add(uintptr_t begin, Key key) {
    regions_[begin >> kCachePageBytesLog2] = {begin + kCachePageBytes, key};
  }
  KeyedRange key(uintptr_t address) const {
    const auto found = regions_.find(address >> kCachePageBytesLog2);
    return found == regions_.end() ? KeyedRange{} : covered(found->second, address);
  }

 private:
  std::unordered_map<uint64_t, CachedRegion> regions_;
};

// This thread's processor time, without other programs on the machine.
uint64_t processor_ns() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// `alone`: independent lookups. `chained`: each lookup depends on the one before, whose key's upper
// bits (always 0) are added to its address.
template <typename Lookup>
void measure_lookup(const std::string& name, const std::vector<uintptr_t>& pointers,
                    const Lookup& lookup) {
  std::vector<double> alone;
  std::vector<double> chained;
  volatile uint64_t sink = 0;
  for (int pass = -1; pass < kPassCount; ++pass) {
    uint64_t sum = 0;
    const uint64_t began = processor_ns();
    for (const uintptr_t pointer : pointers) {
      const KeyedRange range = lookup(pointer);
      sum += range.key + range.bytes;
    }
    const uint64_t between = processor_ns();
    Key last = 0;
    for (const uintptr_t pointer : pointers) last = lookup(pointer + (last >> 63)).key;
    const uint64_t ended = processor_ns();
    sink = sink + sum + last;
    if (pass < 0) continue;  // earlier passes warm the caches
    alone.push_back(static_cast<double>(between - began) / static_cast<double>(kPointerCount));
    chained.push_back(static_cast<double>(ended - between) / static_cast<double>(kPointerCount));
  }
  std::printf("%s:alone %.3f\n%s:chained %.3f\n", name.c_str(), median(alone), name.c_str(),
              median(chained));
}

[[noreturn]] void fail(const Error& error) {
  log_error(error);
  std::exit(1);
}

void measure_key(unsigned segment_count) {
  PinnedPool& pool = process_pool();
  for (unsigned i = 0; i < segment_count; ++i) {
    auto made = pool.create_segment("bench", kSegmentBytes, PageSize::k2MiB, 1);
    if (!made.ok()) fail(made.error());
  }
  io_uring ring = {};
  if (io_uring_queue_init(4, &ring, 0) != 0) fail(error_from_errno("setting up io_uring"));
  {
    UringDevice device(ring);
    KeyTable keys;
    if (auto made = keys.create(pool, device); !made.ok()) fail(made.error());
    std::vector<uintptr_t> pointers(kPointerCount);
    for (uintptr_t& pointer : pointers) {
      const Segment& segment = pool.segment(static_cast<uint32_t>(the_random() % segment_count));
      pointer = reinterpret_cast<uintptr_t>(segment.address) + the_random() % segment.bytes;
    }
    const auto lookup = [&keys](uintptr_t pointer) {
      return keys.key(reinterpret_cast<const void*>(pointer), kAskedBytes);
    };
    measure_lookup("key", pointers, lookup);
  }
  io_uring_queue_exit(&ring);
}

template <typename Cache>
void measure_cache(const char* name, size_t region_count) {
  Cache cache;
  std::vector<uintptr_t> begins;
  std::unordered_set<uintptr_t> taken;
  while (begins.size() < region_count) {  // only addresses, without mappings
    const uintptr_t begin = align_down(the_random() % kTiB, kCachePageBytes);
    if (!taken.insert(begin).second) continue;
    cache.add(begin, begins.size());
    begins.push_back(begin);
  }
  std::vector<uintptr_t> pointers(kPointerCount);
  for (uintptr_t& pointer : pointers) {
    pointer = begins[the_random() % region_count] + the_random() % kCachePageBytes;
  }
  measure_lookup(std::string(name) + ":" + std::to_string(region_count), pointers,
                 [&cache](uintptr_t pointer) { return cache.key(pointer); });
}

// Times each call by itself, including waits; the median of all.
template <typename Call>
void measure_call(const char* name, uint64_t bytes, const Call& call) {
  std::vector<double> calls;
  const uint64_t count = bytes >= kMiB ? 50 : 500;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t began = monotonic_ns();
    if (call(i) != 0) fail(error_from_errno("%s of %" PRIu64 " bytes", name, bytes));
    calls.push_back(static_cast<double>(monotonic_ns() - began));
  }
  std::printf("%s:%" PRIu64 " %.0f\n", name, bytes, median(calls));
}

// Two buffers alternate in one slot of a ring: each call registers one and releases the other.
void measure_registration(std::byte* memory, uint64_t bytes) {
  io_uring ring = {};
  if (io_uring_queue_init(4, &ring, 0) != 0 || io_uring_register_buffers_sparse(&ring, 1) != 0) {
    fail(error_from_errno("setting up io_uring"));
  }
  measure_call("io_uring", bytes, [&](uint64_t i) {
    const iovec buffer = {memory + i % 2 * bytes, bytes};
    const __u64 tag = 0;
    const int done = io_uring_register_buffers_update_tag(&ring, 0, &buffer, &tag, 1);
    errno = done < 0 ? -done : 0;
    return done == 1 ? 0 : -1;
  });
  io_uring_unregister_buffers(&ring);
  io_uring_queue_exit(&ring);
  measure_call("mlock", bytes,
               [&](uint64_t) { return mlock(memory, bytes) != 0 ? -1 : munlock(memory, bytes); });
}

}  // namespace

int main() {
  measure_key(8);
  for (const size_t count : {1, 1'000, 100'000}) {
    measure_cache<Tree>("tree", count);
    measure_cache<Hash>("hash", count);
  }
  constexpr uint64_t kLargestBytes = 64 * kMiB;
  // Ordinary memory in touched pages of 4 KiB, the usual input of a cache.
  void* memory =
      mmap(nullptr, 2 * kLargestBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(error_from_errno("mapping memory to register"));
  madvise(memory, 2 * kLargestBytes, MADV_NOHUGEPAGE);
  std::memset(memory, 1, 2 * kLargestBytes);
  for (const uint64_t bytes : {4 * kKiB, 64 * kKiB, kMiB, kLargestBytes}) {
    measure_registration(static_cast<std::byte*>(memory), bytes);
  }
}
