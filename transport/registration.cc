#include "transport/registration.h"

#include <atomic>
#include <bit>
#include <cinttypes>
#include <cstdio>

#include "pinned_pool/no_way_back.h"
#include "pinned_pool/shared_segments.h"
#include "platform/product.h"
#include "platform/units.h"

namespace bedplate {
namespace {

// With smaller regions the table would be too long, and no real device needs them.
constexpr uint64_t kGranuleBytesMin = kMiB;

std::atomic<uint64_t> total_count{0};
std::atomic<uint64_t> after_seal_count{0};

// Requires: the device takes at least kGranuleBytesMin.
unsigned granule_bytes_log2(const DeviceKind& kind) noexcept {
  return static_cast<unsigned>(std::bit_width(std::min(kind.region_bytes_max, kRegionBytes))) - 1;
}

// The longest region that the device takes and that ends at a granule boundary.
uint64_t cut_bytes(const DeviceKind& kind) noexcept {
  return align_down(kind.region_bytes_max, uint64_t{1} << granule_bytes_log2(kind));
}

uint64_t region_count(uint64_t segment_bytes, uint64_t cut) noexcept {
  return segment_bytes / cut + (segment_bytes % cut != 0 ? 1 : 0);
}

// "boot 1 + heap 2 + 7 in 7 more segments": the regions of each segment, as far as the text holds
// them.
const char* list_regions(std::span<const SegmentSize> segments, uint64_t cut, char* text,
                         size_t text_bytes) noexcept {
  size_t used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < segments.size(); ++i) {
    char one[sizeof(OwnerName) + 32];
    const auto length = static_cast<size_t>(
        std::snprintf(one, sizeof one, "%s%s %" PRIu64, i == 0 ? "" : " + ", segments[i].owner.text,
                      region_count(segments[i].bytes, cut)));
    constexpr size_t kRestBytes = 64;  // for the text after the last named segment
    if (used + length + kRestBytes > text_bytes) {
      uint64_t rest = 0;
      for (size_t k = i; k < segments.size(); ++k) rest += region_count(segments[k].bytes, cut);
      std::snprintf(text + used, text_bytes - used, " + %" PRIu64 " in %zu more segments", rest,
                    segments.size() - i);
      break;
    }
    std::snprintf(text + used, text_bytes - used, "%s", one);
    used += length;
  }
  return text;
}

bool takes(const DeviceKind& kind, const Segment& segment) noexcept {
  return segment.is_for_devices && (segment.is_writable || kind.takes_read_only);
}

std::vector<Region> cut_pool(const PinnedPool& pool, const DeviceKind& kind, uint64_t cut) {
  std::vector<Region> regions;
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    if (!takes(kind, segment)) continue;
    for (uint64_t start = 0; start < segment.bytes; start += std::min(cut, segment.bytes - start)) {
      regions.push_back({segment.address + start, std::min(cut, segment.bytes - start), kNoKey});
    }
  }
  return regions;
}

uint64_t offset_of(const std::byte* address) noexcept {
  return reinterpret_cast<uintptr_t>(address) - kPoolBase;
}

}  // namespace

Result<void> check_fit(const DeviceKind& kind, std::span<const SegmentSize> segments) noexcept {
  uint64_t bytes = 0;
  for (const SegmentSize& segment : segments) bytes += segment.bytes;
  Error error = error_while("fitting the pool of %s into the limits of %s",
                            format_bytes(bytes).text, kind.name);
  const char* or_instead = kind.instead[0] == '\0' ? "" : "; or ";
  if (kind.region_bytes_max < kGranuleBytesMin) {
    error.set_answer("it accepts regions of at most %s, and the pool's regions have at least %s",
                     format_bytes(kind.region_bytes_max).text, format_bytes(kGranuleBytesMin).text);
    return error.set_cure("use another device%s%s", or_instead, kind.instead);
  }
  const uint64_t cut = cut_bytes(kind);
  uint64_t count = 0;
  uint64_t longest = 0;
  for (const SegmentSize& segment : segments) {
    count += region_count(segment.bytes, cut);
    longest = std::max(longest, std::min(cut, segment.bytes));
  }
  if (count > kind.region_count_max) {
    char list[160];
    error.set_answer("%" PRIu64 " regions of at most %s are needed (%s), it accepts %" PRIu64,
                     count, format_bytes(longest).text,
                     list_regions(segments, cut, list, sizeof list), kind.region_count_max);
    return error.set_cure("make [pool] bytes smaller or use fewer segments, until %" PRIu64
                          " regions are enough (`%s plan` shows them)%s%s",
                          kind.region_count_max, product().name, or_instead, kind.instead);
  }
  if (bytes > kind.total_bytes_max) {
    error.set_answer("%s in %" PRIu64 " regions of at most %s are needed, it accepts %s in all",
                     format_bytes(bytes).text, count, format_bytes(longest).text,
                     format_bytes(kind.total_bytes_max).text);
    return error.set_cure("make [pool] bytes at most %" PRIu64
                          " (`%s plan` shows who needs what)%s%s",
                          kind.total_bytes_max, product().name, or_instead, kind.instead);
  }
  return {};
}

Result<void> check_fit(const DeviceKind& kind, const PoolPlan& plan) {
  std::vector<SegmentSize> segments;
  for (const SegmentPlan& segment : plan.segments) {
    if (segment.is_for_devices) segments.push_back({segment.owner, segment.bytes});
  }
  return check_fit(kind, segments);
}

bool KeyTable::is_valid() const noexcept {
  if (device_ == nullptr) return span_bytes_ == 0;
  uint64_t granule_count = 0;
  for (const Region& region : regions_) {
    const uint64_t begin = offset_of(region.address);
    const uint64_t end = begin + region.bytes;
    if (region.key == kNoKey || region.bytes == 0 || end > span_bytes_) return false;
    if (begin % (uint64_t{1} << granule_bytes_log2_) != 0) return false;
    for (uint64_t at = begin >> granule_bytes_log2_;
         at < entries_.size() && at << granule_bytes_log2_ < end; ++at, ++granule_count) {
      if (entries_[at].end != end || entries_[at].key != region.key) return false;
    }
  }
  return granule_count ==
         static_cast<uint64_t>(std::count_if(entries_.begin(), entries_.end(),
                                             [](const Entry& entry) { return entry.end != 0; }));
}

Result<void> KeyTable::create(PinnedPool& pool, Device& device) {
  require_shared_segments(pool);
  BP_ASSERT(device_ == nullptr);
  const DeviceKind& kind = device.kind();
  std::vector<SegmentSize> sizes;
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const Segment& segment = pool.segment(i);
    if (takes(kind, segment)) sizes.push_back({segment.owner, segment.bytes});
  }
  BP_TRY(check_fit(kind, sizes));
  std::vector<Region> regions = cut_pool(pool, kind, cut_bytes(kind));
  uint64_t span_bytes = 0;
  for (const Region& region : regions) {
    const uint64_t offset = offset_of(region.address);
    BP_ASSERT(offset < kPoolSpanBytes && region.bytes <= kPoolSpanBytes - offset);
    span_bytes = std::max(span_bytes, offset + region.bytes);
  }
  count_registrations(pool, regions.size());
  BP_TRY(device.register_regions(regions));
  device_ = &device;
  regions_ = std::move(regions);
  granule_bytes_log2_ = granule_bytes_log2(kind);
  const uint64_t granule_bytes = uint64_t{1} << granule_bytes_log2_;
  entries_.assign(align_up(span_bytes, granule_bytes) >> granule_bytes_log2_, Entry{});
  for (const Region& region : regions_) {
    const uint64_t begin = offset_of(region.address);
    const uint64_t end = begin + region.bytes;
    for (uint64_t at = begin; at < end; at += granule_bytes) {
      entries_[at >> granule_bytes_log2_] = {end, region.key};
    }
  }
  span_bytes_ = span_bytes;
  BP_DCHECK_SLOW(is_valid());
  if (kind.holds_pages) pool.add_stoppers(kPinStops);
  return {};
}

void KeyTable::destroy() noexcept {
  BP_DCHECK_SLOW(is_valid());
  span_bytes_ = 0;
  if (device_ != nullptr) device_->deregister_regions(regions_);
  device_ = nullptr;
}

void count_registrations(const PinnedPool& pool, uint64_t count) noexcept {
  total_count.fetch_add(count, std::memory_order_relaxed);
  if (pool.is_sealed()) after_seal_count.fetch_add(count, std::memory_order_relaxed);
}

RegistrationCounts registration_counts() noexcept {
  return {total_count.load(std::memory_order_relaxed),
          after_seal_count.load(std::memory_order_relaxed)};
}

}  // namespace bedplate
