#include "pinned_pool/pinned_pool.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "pinned_pool/no_way_back.h"
#include "platform/cache_line.h"
#include "platform/file.h"
#include "platform/parallel.h"
#include "platform/units.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

namespace bedplate {
namespace {

constexpr uint64_t kPopulateChunkBytes = 64 * kMiB;

// Sanitizers answer mlock themselves, and lock nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMlockLocks = false;
#else
constexpr bool kMlockLocks = true;
#endif

Error with_hugepage_cure(Error error, PageSize page, uint64_t bytes, int node) noexcept {
  if (!is_huge(page)) {
    return error.set_cure("free memory, or make [pool] bytes smaller");
  }
  const HugepageCounts counts = hugepage_counts(page, node);
  const uint64_t needed = bytes / page_bytes(page);
  return error.set_cure("%" PRIu64 " pages of %s are free, %" PRIu64
                        " are needed: echo %" PRIu64 " > %s",
                        counts.available_count, format_bytes(page_bytes(page)).text, needed,
                        counts.total_count + needed - std::min(needed, counts.available_count),
                        hugepage_count_file(page, node).path);
}

Fd open_memfd(const OwnerName& owner, PageSize page) noexcept {
  unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  if (page == PageSize::k2MiB) flags |= MFD_HUGETLB | MFD_HUGE_2MB;
  if (page == PageSize::k1GiB) flags |= MFD_HUGETLB | MFD_HUGE_1GB;
  Fd fd(memfd_create(owner.text, flags | MFD_NOEXEC_SEAL));
  // EINVAL: a kernel that does not know the flag, which only silences a warning of newer ones.
  if (!fd.is_open() && errno == EINVAL) fd = Fd(memfd_create(owner.text, flags));
  return fd;
}

// Takes the pages of [address, address + bytes). Returns 0 or an errno value. A hugepage that is
// missing shows here as an error, not later as a SIGBUS.
int populate(std::byte* address, uint64_t bytes, unsigned thread_count) noexcept {
  std::atomic<int> first_errno{0};
  std::atomic<uint64_t> next{0};
  const auto worker = [&]() noexcept {
    for (;;) {
      const uint64_t start = next.fetch_add(kPopulateChunkBytes, std::memory_order_relaxed);
      if (start >= bytes) return;
      const uint64_t length = std::min(kPopulateChunkBytes, bytes - start);
      int outcome = 0;
      do {
        outcome = madvise(address + start, length, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
      } while (outcome == EINTR);
      if (outcome != 0) first_errno.store(outcome, std::memory_order_relaxed);
    }
  };
  run_in_parallel(bytes > kPopulateChunkBytes ? thread_count : 1, worker);
  return first_errno.load(std::memory_order_relaxed);
}

}  // namespace

Result<Segment*> PinnedPool::create_segment(const OwnerName& owner, uint64_t bytes, PageSize page,
                                            unsigned thread_count, int node) {
  BP_ASSERT(!is_sealed());
  BP_ASSERT(bytes > 0 && bytes % page_bytes(page) == 0);
  BP_ASSERT(segment_count_ < kSegmentCountMax);
  BP_ASSERT(next_region_ + regions_of(bytes) <= kRegionCountMax);
  Error failed;
  char on_node[24] = "";
  if (node != kAnyNode) std::snprintf(on_node, sizeof on_node, " on node %d", node);
  failed.set_doing("taking %s for %s in pages of %s%s", format_bytes(bytes).text, owner.text,
                   format_bytes(page_bytes(page)).text, on_node);

  Fd memfd = open_memfd(owner, page);
  if (!memfd.is_open() || ftruncate(memfd.number(), static_cast<off_t>(bytes)) != 0) {
    return with_hugepage_cure(failed.set_answer_errno(errno), page, bytes, node);
  }
  auto* wanted = reinterpret_cast<std::byte*>(base_ + next_region_ * kRegionBytes);
  void* mapped = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                      memfd.number(), 0);
  if (mapped == MAP_FAILED && errno == EEXIST) {
    return failed.set_answer("its address %p is already in use in this process",
                             static_cast<void*>(wanted))
        .set_cure("find the mapping in /proc/self/maps; run without the tool that put it there");
  }
  if (mapped == MAP_FAILED) {
    return with_hugepage_cure(failed.set_answer_errno(errno), page, bytes, node);
  }
  if (const int outcome = bind_to_node(wanted, bytes, node); outcome != 0) {
    munmap(mapped, bytes);
    return failed.set_answer_errno(outcome).set_cure(
        "choose another node, or allow the system call mbind (containers want CAP_SYS_NICE)");
  }
  if (const int outcome = populate(wanted, bytes, thread_count); outcome != 0) {
    munmap(mapped, bytes);
    return with_hugepage_cure(failed.set_answer_errno(outcome), page, bytes, node);
  }
  if (fcntl(memfd.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    failed.set_answer_errno(errno).set_cure("a kernel with memfd seals is needed");
    munmap(mapped, bytes);
    return failed;
  }
  Segment& segment = segments_[segment_count_++];
  segment.owner = owner;
  segment.address = wanted;
  segment.bytes = bytes;
  segment.page = page;
  struct stat identity = {};
  BP_ASSERT(fstat(memfd.number(), &identity) == 0);
  segment.device = identity.st_dev;
  segment.inode = identity.st_ino;
  segment.node = node;
  segment.memfd = memfd.release();
  // Hugepages are never swapped nor migrated away: mlock would add nothing but a limit.
  if (!is_huge(page) && mlock(mapped, bytes) != 0) segment.lock_errno = errno;
  next_region_ += regions_of(bytes);
  return &segment;
}

Result<void> PinnedPool::reserve(const PoolPlan& plan, unsigned thread_count) {
  BP_ASSERT(!plan.segments.empty() && segment_count_ == 1);
  BP_ASSERT(plan.segments[0].bytes == segments_[0].bytes);
  for (size_t i = 1; i < plan.segments.size(); ++i) {
    const SegmentPlan& planned = plan.segments[i];
    BP_TRY(create_segment(planned.owner, planned.bytes, planned.page, thread_count,
                          planned.node));
  }
  return {};
}

std::span<std::byte> PinnedPool::carve(Segment& segment, const OwnerName& owner,
                                       uint64_t bytes) noexcept {
  (void)owner;
  BP_ASSERT(!is_sealed());
  BP_ASSERT(bytes % kCacheLineBytes == 0);
  BP_ASSERT(bytes <= segment.bytes - segment.carved_bytes);
  std::byte* address = segment.address + segment.carved_bytes;
  segment.carved_bytes += bytes;
  return {address, bytes};
}

void PinnedPool::seal() noexcept {
  BP_ASSERT(!is_sealed());
  uint32_t stoppers = kSizeSealStops | kWriteSealStops | kMappingSealStops;
  for (uint32_t i = 0; i < segment_count_; ++i) {
    const Segment& segment = segments_[i];
    if (seal_against_writers(segment.memfd) != 0) stoppers &= ~uint32_t{kWriteSealStops};
    if (seal_mapping(segment.address, segment.bytes) != 0) {
      stoppers &= ~uint32_t{kMappingSealStops};
    }
  }
  if (memory_calls_are_intercepted()) stoppers |= kLibcCallStops;
  add_stoppers(stoppers);
  is_sealed_.store(true, std::memory_order_release);
}

Segment* PinnedPool::find_segment(const OwnerName& owner) noexcept {
  for (uint32_t i = 0; i < segment_count_; ++i) {
    if (segments_[i].owner == owner) return &segments_[i];
  }
  return nullptr;
}

bool PinnedPool::contains(const void* pointer, uint64_t bytes) const noexcept {
  const auto* wanted = static_cast<const std::byte*>(pointer);
  for (uint32_t i = 0; i < segment_count_; ++i) {
    const Segment& segment = segments_[i];
    const auto offset = static_cast<uint64_t>(wanted - segment.address);
    if (offset < segment.bytes && bytes <= segment.bytes - offset) return true;
  }
  return false;
}

bool PinnedPool::overlaps(const void* pointer, uint64_t bytes) const noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t end = begin + bytes < begin ? UINTPTR_MAX : begin + bytes;
  for (uint32_t i = 0; i < segment_count_; ++i) {
    const auto segment_begin = reinterpret_cast<uintptr_t>(segments_[i].address);
    if (begin < segment_begin + segments_[i].bytes && segment_begin < end) return true;
  }
  return false;
}

uint64_t PinnedPool::total_bytes() const noexcept {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < segment_count_; ++i) bytes += segments_[i].bytes;
  return bytes;
}

void PinnedPool::write_map(PoolMap* map) const noexcept {
  for (uint32_t i = 0; i < segment_count_; ++i) {
    const Segment& segment = segments_[i];
    const bool is_locked = kMlockLocks && !is_huge(segment.page) && segment.lock_errno == 0;
    map->segments[i] = {segment.owner,
                        reinterpret_cast<uintptr_t>(segment.address),
                        segment.bytes,
                        page_bytes(segment.page),
                        segment.device,
                        segment.inode,
                        is_locked,
                        segment.node};
  }
  map->segment_count = segment_count_;
  map->is_sealed = is_sealed() ? 1 : 0;
}

namespace {
constinit PinnedPool the_process_pool(kPoolBase);
}  // namespace

PinnedPool& process_pool() noexcept { return the_process_pool; }

}  // namespace bedplate
