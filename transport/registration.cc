#include "transport/registration.h"

#include "pinned_pool/no_way_back.h"

namespace bedplate {
namespace {

std::atomic<uint64_t> total_count{0};
std::atomic<uint64_t> after_seal_count{0};

void count_registrations(const PinnedPool& pool, uint64_t count) noexcept {
  total_count.fetch_add(count, std::memory_order_relaxed);
  if (pool.is_sealed()) after_seal_count.fetch_add(count, std::memory_order_relaxed);
}

}  // namespace

size_t regions_of_pool(const PinnedPool& pool, std::span<Region> regions) noexcept {
  size_t count = 0;
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    for (uint64_t start = 0; start < segment.bytes; start += kRegionBytes) {
      BP_ASSERT(count < regions.size());
      std::byte* address = segment.address + start;
      const uint64_t offset = reinterpret_cast<uintptr_t>(address) - kPoolBase;
      regions[count++] = {static_cast<uint32_t>(offset >> kRegionBytesLog2), address,
                          std::min(kRegionBytes, segment.bytes - start)};
    }
  }
  return count;
}

Result<void> KeyTable::create(PinnedPool& pool, Device& device) {
  Region regions[kRegionCountMax];
  Key keys[kRegionCountMax];
  const size_t count = regions_of_pool(pool, regions);
  for (size_t i = 0; i < count; ++i) BP_ASSERT(regions[i].number < kRegionCountMax);
  count_registrations(pool, count);
  BP_TRY(device.register_regions({regions, count}, {keys, count}));
  for (size_t i = 0; i < count; ++i) entries_[regions[i].number] = {regions[i].bytes, keys[i]};
  if (device.holds_pages()) pool.add_stoppers(kPinStops);
  return {};
}

RegistrationCounts registration_counts() noexcept {
  return {total_count.load(std::memory_order_relaxed),
          after_seal_count.load(std::memory_order_relaxed)};
}

}  // namespace bedplate
