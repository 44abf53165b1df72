#include "pinned_pool/pinned_pool.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <fcntl.h>
#include <unistd.h>

#include "pinned_pool/no_way_back.h"
#include "pinned_pool/take_error.h"
#include "pinned_pool/taken_pages.h"
#include "platform/cache_line.h"
#include "platform/file.h"
#include "platform/log.h"
#include "platform/memfd.h"
#include "platform/parallel.h"
#include "platform/progress.h"
#include "platform/standard_streams.h"
#include "platform/stop_signals.h"
#include "platform/units.h"

namespace bedplate {
namespace {

constexpr uint64_t kPopulateChunkBytes = 64 * kMiB;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// Makes the system call itself: sanitizers replace mlock by a function that does nothing.
int lock_pages(const void* address, uint64_t bytes) noexcept {
  return syscall(SYS_mlock, address, bytes) == 0 ? 0 : errno;
}

Fd open_memfd(const OwnerName& owner, PageSize page) noexcept {
  unsigned flags = 0;
  if (page == PageSize::k2MiB) flags |= MFD_HUGETLB | MFD_HUGE_2MB;
  if (page == PageSize::k1GiB) flags |= MFD_HUGETLB | MFD_HUGE_1GB;
  Fd fd = make_memfd(owner.text, flags);
  if (!fd.is_open() || fd.number() > STDERR_FILENO) return fd;
  // Moves the descriptor above the standard streams: program output must not land in a segment.
  Fd above(fcntl(fd.number(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!above.is_open() && errno == EINVAL) errno = EMFILE;  // F_DUPFD's errno at RLIMIT_NOFILE
  return above;
}

// Maps `memory`, all or part of `segment`, at its address, where nothing may be mapped. Returns
// false, with errno, if that fails.
bool map_pages(const Segment& segment, std::span<std::byte> memory) noexcept {
  const int flags = segment.is_private() ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  const off_t offset = segment.is_private() ? 0 : memory.data() - segment.address;
  if (mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE,
           segment.memfd, offset) == MAP_FAILED) {
    return false;
  }
  // For a file the configuration sets the page size. Private memory gets large pages if the kernel
  // has them.
  if (segment.is_private()) madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
  return true;
}

// Takes the pages of [address, address + bytes). Returns 0 or an errno value: a missing hugepage is
// an error here, not a SIGBUS later. Stops early if a blocked stop signal is pending: hundreds of
// GiB would take minutes. `progress` may be nullptr.
int populate(std::byte* address, uint64_t bytes, unsigned thread_count,
             Progress* progress) noexcept {
  std::atomic<int> first_errno{0};
  std::atomic<uint64_t> next{0};
  const auto worker = [&]() noexcept {
    for (;;) {
      const uint64_t start = next.fetch_add(kPopulateChunkBytes, std::memory_order_relaxed);
      if (start >= bytes || first_errno.load(std::memory_order_relaxed) == ECANCELED) return;
      const uint64_t length = std::min(kPopulateChunkBytes, bytes - start);
      const bool must_stop = start > 0 && waiting_stop_signal() != 0;
      const int outcome = must_stop ? ECANCELED : take_pages({address + start, length});
      if (outcome != 0) first_errno.store(outcome, std::memory_order_relaxed);
      if (outcome == 0 && progress != nullptr) progress->add(length);
    }
  };
  run_in_parallel(bytes > kPopulateChunkBytes ? thread_count : 1, worker);
  return first_errno.load(std::memory_order_relaxed);
}

// Maps and takes `memory`, which follows the pages of `segment`. Returns 0 or an errno value; then
// none of it is mapped.
int take_further_pages(const Segment& segment, std::span<std::byte> memory) noexcept {
  if (!map_pages(segment, memory)) return errno;
  int outcome = bind_to_node(memory.data(), memory.size(), segment.node);
  if (outcome == 0) outcome = populate(memory.data(), memory.size(), 1, nullptr);
  if (outcome != 0) munmap(memory.data(), memory.size());
  return outcome;
}

}  // namespace

bool Segment::has_its_memfd() const noexcept {
  struct stat identity = {};
  return !is_private() && fstat(memfd, &identity) == 0 && identity.st_dev == device &&
         identity.st_ino == inode;
}

Result<Segment*> PinnedPool::create_segment(const OwnerName& owner, uint64_t bytes, PageSize page,
                                            unsigned thread_count, int node, Progress* progress) {
  const ThreadOwner::Hold hold(maker_);
  BP_KEEPS_VALID(*this);
  BP_ASSERT(bytes > 0 && bytes % page_bytes(page) == 0);
  const TakeAttempt attempt = {owner, bytes, page, node, next_address()};
  hold_standard_streams();
  Fd memfd = open_memfd(owner, page);
  if (!memfd.is_open()) return take_error(attempt, TakeStep::kMakeFile, errno);
  if (!may_make_file_of(bytes)) return take_error(attempt, TakeStep::kSizeFile, EFBIG);
  if (ftruncate(memfd.number(), static_cast<off_t>(bytes)) != 0) {
    return take_error(attempt, TakeStep::kSizeFile, errno);
  }
  return take(attempt, std::move(memfd), thread_count, progress);
}

Result<Segment*> PinnedPool::create_private_segment(const OwnerName& owner, uint64_t bytes,
                                                    unsigned thread_count) {
  const ThreadOwner::Hold hold(maker_);
  BP_KEEPS_VALID(*this);
  BP_ASSERT(bytes > 0 && bytes % page_bytes(PageSize::k4KiB) == 0);
  hold_standard_streams();
  const TakeAttempt attempt = {owner, bytes, PageSize::k4KiB, kAnyNode, next_address(), true};
  return take(attempt, Fd(), thread_count, nullptr);
}

Result<Segment*> PinnedPool::take(const TakeAttempt& attempt, Fd memfd, unsigned thread_count,
                                  Progress* progress) {
  BP_ASSERT(!is_sealed());
  BP_ASSERT(has_room_for(attempt.bytes));
  Segment made;
  made.owner = attempt.owner;
  made.number = segment_count();
  made.address = next_address();
  made.bytes = attempt.bytes;
  made.page = attempt.page;
  made.node = attempt.node;
  made.memfd = memfd.number();
  const auto failed = [&](TakeStep step, int error_number) {
    const Error error = take_error(attempt, step, error_number);
    if (step != TakeStep::kMap) munmap(made.address, made.bytes);
    return error;
  };
  if (!map_pages(made, made.memory())) return failed(TakeStep::kMap, errno);
  if (const int outcome = bind_to_node(made.address, made.bytes, made.node); outcome != 0) {
    return failed(TakeStep::kBind, outcome);
  }
  if (const int outcome = populate(made.address, made.bytes, thread_count, progress);
      outcome != 0) {
    return failed(TakeStep::kPopulate, outcome);
  }
  // The first segment may grow until there is a second one, and a failed growth is undone.
  if (segment_count() == 1) end_growth();
  if (!made.is_private()) {
    if (segment_count() > 0 && fcntl(made.memfd, F_ADD_SEALS, kSizeSeals) != 0) {
      return failed(TakeStep::kSealFile, errno);
    }
    struct stat identity = {};
    if (fstat(made.memfd, &identity) != 0) return failed(TakeStep::kLookAtFile, errno);
    made.device = identity.st_dev;
    made.inode = identity.st_ino;
    memfd.release();
  }
  // Hugepages are never swapped or migrated: mlock would only count against the limit.
  if (!is_huge(made.page)) made.lock_errno = lock_pages(made.address, made.bytes);
  next_region_ += regions_of(made.bytes);
  Segment& segment = segments_[made.number];
  segment = made;
  segment_count_.store(made.number + 1, std::memory_order_release);  // pairs with segment_count
  return &segment;
}

bool PinnedPool::grow_first_segment(uint64_t bytes) noexcept {
  const ThreadOwner::Hold hold(maker_);
  BP_ASSERT(!is_sealed() && segment_count() == 1);
  Segment& first = segments_[0];
  BP_ASSERT(first.is_own && bytes > 0 && bytes % page_bytes(first.page) == 0);
  const uint64_t whole_bytes = first.bytes + bytes;
  errno = ENOMEM;
  if (regions_of(whole_bytes) > kRegionCountMax / 2) return false;
  if (!first.is_private()) {
    if (!first.has_its_memfd()) return false;
    errno = EFBIG;
    if (!may_make_file_of(whole_bytes)) return false;
    if (ftruncate(first.memfd, static_cast<off_t>(whole_bytes)) != 0) return false;
  }
  std::byte* const more = first.address + first.bytes;
  if (const int outcome = take_further_pages(first, {more, bytes}); outcome != 0) {
    if (!first.is_private()) (void)!ftruncate(first.memfd, static_cast<off_t>(first.bytes));
    errno = outcome;
    return false;
  }
  if (!is_huge(first.page) && first.lock_errno == 0) first.lock_errno = lock_pages(more, bytes);
  first.bytes = whole_bytes;
  next_region_ = regions_of(whole_bytes);
  BP_DCHECK_SLOW(is_valid());
  return true;
}

void PinnedPool::end_growth() noexcept {
  if (segments_[0].has_its_memfd()) fcntl(segments_[0].memfd, F_ADD_SEALS, kSizeSeals);
}

Result<void> PinnedPool::reserve(const PoolPlan& plan, unsigned thread_count) {
  BP_ASSERT(!plan.segments.empty() && segment_count() == 1);
  BP_ASSERT(plan.segments[0].bytes == segments_[0].bytes);
  BP_DCHECK_SLOW(plan.is_valid());
  Progress progress("taking memory", {.total_bytes = plan.total_bytes() - plan.segments[0].bytes});
  for (size_t i = 1; i < plan.segments.size(); ++i) {
    const SegmentPlan& planned = plan.segments[i];
    auto created = create_segment(planned.owner, planned.bytes, planned.page, thread_count,
                                  planned.node, &progress);
    if (!created.ok()) return created.error();
    created.value()->is_for_devices = planned.is_for_devices;
  }
  BP_ASSERT(is_as_planned(plan));
  return {};
}

bool PinnedPool::is_valid(const Segment& segment) const noexcept {
  const uint64_t offset = reinterpret_cast<uintptr_t>(segment.address) - base_;
  const uint64_t end_region = (offset >> kRegionBytesLog2) + regions_of(segment.bytes);
  if (offset % kRegionBytes != 0 || segment.bytes == 0 || end_region > next_region_ ||
      !is_page_bytes(page_bytes(segment.page)) || segment.bytes % page_bytes(segment.page) != 0) {
    return false;
  }
  if (segment.carved_bytes > segment.bytes || segment.carved_bytes % kCacheLineBytes != 0 ||
      (!segment.is_own && segment.carved_bytes != segment.bytes)) {
    return false;
  }
  if (segment.is_own && (&segment - &segments_[0] != static_cast<ptrdiff_t>(segment.number) ||
                         !segment.is_writable)) {
    return false;
  }
  if (segment.is_private()) {
    return segment.is_own && segment.inode == 0 && !is_huge(segment.page) && !is_sealed();
  }
  if (segment.memfd <= STDERR_FILENO || segment.inode == 0) return false;
  return !segment.has_write_seal || (segment.is_own && segment.takes_write_seal && is_sealed());
}

bool PinnedPool::is_valid() const noexcept {
  if (segment_count() > kSegmentCountMax || next_region_ > kRegionCountMax) return false;
  bool is_taken[kRegionCountMax] = {};
  for (uint32_t i = 0; i < segment_count(); ++i) {
    const Segment& segment = segments_[i];
    if (!is_valid(segment)) return false;
    const uint64_t region =
        (reinterpret_cast<uintptr_t>(segment.address) - base_) >> kRegionBytesLog2;
    for (uint64_t k = 0; k < regions_of(segment.bytes); ++k) {
      if (std::exchange(is_taken[region + k], true)) return false;
    }
  }
  return !is_sealed() || (stoppers() & kSizeSealStops) != 0;
}

bool PinnedPool::is_as_planned(const PoolPlan& plan) const noexcept {
  if (plan.segments.size() != segment_count()) return false;
  for (uint32_t i = 0; i < segment_count(); ++i) {
    const Segment& segment = segments_[i];
    const SegmentPlan& planned = plan.segments[i];
    if (segment.bytes != planned.bytes || segment.number != i) return false;
    if (i == 0) continue;
    if (!(segment.owner == planned.owner) || segment.page != planned.page ||
        segment.is_for_devices != planned.is_for_devices ||
        segment.carved_bytes > planned.carved_bytes()) {
      return false;
    }
  }
  return true;
}

std::span<std::byte> PinnedPool::carve(Segment& segment, const OwnerName& owner,
                                       uint64_t bytes) noexcept {
  (void)owner;
  const ThreadOwner::Hold hold(maker_);
  BP_KEEPS_VALID(*this);
  BP_ASSERT(!is_sealed());
  BP_DCHECK(segment.is_own && &segment == segment_of(segment.address));
  BP_ASSERT(bytes % kCacheLineBytes == 0);
  BP_ASSERT(bytes <= segment.bytes - segment.carved_bytes);
  std::byte* address = segment.address + segment.carved_bytes;
  segment.carved_bytes += bytes;
  return {address, bytes};
}

Result<void> PinnedPool::give_files(uid_t user, gid_t group) noexcept {
  const ThreadOwner::Hold hold(maker_);
  BP_DCHECK_SLOW(is_valid());
  BP_ASSERT(!is_sealed());
  for (uint32_t i = 0; i < segment_count(); ++i) {
    const Segment& segment = segments_[i];
    if (!segment.has_its_memfd() || fchown(segment.memfd, user, group) == 0) continue;
    return error_from_errno("giving %s to user %u", segment.owner.text, user)
        .set_cure("start it in a container with CAP_CHOWN");
  }
  return {};
}

Segment* PinnedPool::find_segment(const OwnerName& owner) noexcept {
  for (uint32_t i = 0; i < segment_count(); ++i) {
    if (segments_[i].owner == owner) return &segments_[i];
  }
  return nullptr;
}

const Segment* PinnedPool::segment_of(const void* pointer) const noexcept {
  const auto* wanted = static_cast<const std::byte*>(pointer);
  for (uint32_t i = 0; i < segment_count(); ++i) {
    if (static_cast<uint64_t>(wanted - segments_[i].address) < segments_[i].bytes) {
      return &segments_[i];
    }
  }
  return nullptr;
}

bool PinnedPool::contains(const void* pointer, uint64_t bytes) const noexcept {
  const Segment* segment = segment_of(pointer);
  if (segment == nullptr) return false;
  const auto offset =
      static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - segment->address);
  return bytes <= segment->bytes - offset;
}

bool PinnedPool::overlaps(const void* pointer, uint64_t bytes) const noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  const uintptr_t end = begin + bytes < begin ? UINTPTR_MAX : begin + bytes;
  for (uint32_t i = 0; i < segment_count(); ++i) {
    const auto segment_begin = reinterpret_cast<uintptr_t>(segments_[i].address);
    if (begin < segment_begin + segments_[i].bytes && segment_begin < end) return true;
  }
  return false;
}

uint64_t PinnedPool::total_bytes() const noexcept {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < segment_count(); ++i) bytes += segments_[i].bytes;
  return bytes;
}

void PinnedPool::write_map(PoolMap* map) const noexcept {
  for (uint32_t i = 0; i < segment_count(); ++i) {
    const Segment& segment = segments_[i];
    const bool is_locked = !is_huge(segment.page) && segment.lock_errno == 0;
    map->segments[i] = {segment.owner,       reinterpret_cast<uintptr_t>(segment.address),
                        segment.bytes,       page_bytes(segment.page),
                        segment.device,      segment.inode,
                        is_locked,           segment.node,
                        segment.is_writable, segment.has_write_seal};
  }
  map->segment_count = segment_count();
  map->is_sealed = is_sealed() ? 1 : 0;
}

namespace {
constinit PinnedPool the_process_pool(kPoolBase);
}  // namespace

PinnedPool& process_pool() noexcept { return the_process_pool; }

}  // namespace bedplate
