// PinnedPool::adopt_segment: a joiner maps a segment that the pool's owner offers.
#include <algorithm>
#include <cerrno>
#include <cinttypes>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/shared_segments.h"
#include "pinned_pool/take_error.h"

namespace bedplate {
namespace {

constexpr const char* kOwnersFault =
    "the owner of the pool described it incorrectly: run both from the same release of Bedplate";

// Returns whether the file of `memfd` matches the offer. Sets `status` to the file's fstat(2), or
// sets the answer of `error`.
bool is_as_offered(const OfferedSegment& offered, int memfd, struct stat& status,
                   Error* error) noexcept {
  struct statfs system = {};
  if (fstat(memfd, &status) != 0 || fstatfs(memfd, &system) != 0) {
    error->set_answer_errno(errno);
    return false;
  }
  const bool is_huge = offered.page_bytes != page_bytes(PageSize::k4KiB);
  const bool has_its_page = is_huge
                                ? system.f_type == HUGETLBFS_MAGIC &&
                                      static_cast<uint64_t>(system.f_bsize) == offered.page_bytes
                                : system.f_type == TMPFS_MAGIC;
  if (!S_ISREG(status.st_mode) || !has_its_page) {
    error->set_answer("its file has pages of another size");
    return false;
  }
  if (static_cast<uint64_t>(status.st_size) != offered.bytes) {
    error->set_answer("its file has %" PRIu64 " bytes", static_cast<uint64_t>(status.st_size));
    return false;
  }
  constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    error->set_answer("its file could shrink or grow");
    return false;
  }
  if ((fcntl(memfd, F_GETFL) & O_ACCMODE) != (offered.is_writable ? O_RDWR : O_RDONLY)) {
    error->set_answer("its file has different access rights");
    return false;
  }
  return true;
}

}  // namespace

Result<Segment*> PinnedPool::adopt_segment(const OfferedSegment& offered, Fd memfd) noexcept {
  const ThreadOwner::Hold hold(maker_);
  BP_KEEPS_VALID(*this);
  BP_ASSERT(!is_sealed());
  require_shared_segments(*this);
  Error error = error_while("mapping %s of the pool, %" PRIu64 " bytes at 0x%" PRIx64 ", %s",
                            offered.owner.text, offered.bytes, offered.address,
                            offered.is_writable ? "writable" : "read-only")
                    .set_cure("%s", kOwnersFault);
  if (!is_page_bytes(offered.page_bytes) || offered.bytes == 0 ||
      offered.bytes % offered.page_bytes != 0) {
    return error.set_answer("its size is not a multiple of a page of %" PRIu64 " bytes",
                            offered.page_bytes);
  }
  const uint64_t offset = offered.address - base_;
  const uint64_t region = offset >> kRegionBytesLog2;
  if (offset % kRegionBytes != 0 || region >= kRegionCountMax ||
      offered.bytes > (kRegionCountMax - region) * kRegionBytes) {
    return error.set_answer("it does not fit the regions of the pool's range");
  }
  const uint64_t end_region = region + regions_of(offered.bytes);
  for (uint32_t i = 0; i < segment_count(); ++i) {
    const uint64_t first =
        (reinterpret_cast<uintptr_t>(segments_[i].address) - base_) >> kRegionBytesLog2;
    if (region < first + regions_of(segments_[i].bytes) && first < end_region) {
      return error.set_answer("%s of this process lies there", segments_[i].owner.text);
    }
  }
  if (segment_count() == kSegmentCountMax || offered.number >= kSegmentCountMax) {
    return error.set_answer("a pool has at most %u segments", kSegmentCountMax);
  }
  struct stat identity = {};
  if (!is_as_offered(offered, memfd.number(), identity, &error)) return error;

  auto* wanted = reinterpret_cast<std::byte*>(offered.address);
  const auto page = static_cast<PageSize>(offered.page_bytes);
  const int rights = PROT_READ | (offered.is_writable ? PROT_WRITE : 0);
  if (mmap(wanted, offered.bytes, rights, MAP_SHARED | MAP_FIXED_NOREPLACE, memfd.number(), 0) ==
      MAP_FAILED) {
    return take_error({offered.owner, offered.bytes, page, kAnyNode, wanted}, TakeStep::kMap,
                      errno);
  }
  Segment& segment = segments_[segment_count()];
  segment.owner = offered.owner;
  segment.number = offered.number;
  segment.address = wanted;
  segment.bytes = offered.bytes;
  segment.page = page;
  segment.device = identity.st_dev;
  segment.inode = identity.st_ino;
  segment.memfd = memfd.release();
  segment.carved_bytes = offered.bytes;            // by its owner
  segment.lock_errno = is_huge(page) ? 0 : EPERM;  // the owner locks its 4 KiB pages
  segment.is_writable = offered.is_writable;
  segment.is_for_devices = offered.is_for_devices;
  segment.is_own = false;
  next_region_ = std::max(next_region_, end_region);
  segment_count_.store(segment_count() + 1, std::memory_order_release);  // pairs with segment_count
  return &segment;
}

}  // namespace bedplate
