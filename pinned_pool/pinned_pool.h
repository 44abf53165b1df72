// PinnedPool: all memory of the process that devices and peers may touch.
//
// Each segment is a memfd, sealed against shrinking and growing, mapped at a fixed address, its
// pages taken and locked before anything uses them. (But for the heap of a program that shares it
// with nobody: that is private memory, which a fork copies; fork_rule.h.) Between reserve and seal
// services carve their parts; after the seal the layout never changes, and what could take memory
// away is stopped (no_way_back.h says by what). Nothing is ever given back before the process ends:
// there is no function for it.
//
// The pool knows no device and no allocator; transport/registration and alloc/ stand on it.
//
// Threads: one at a time until the seal; from then on nothing changes, and all that is const may be
// called by any.
//
// Invariants, which is_valid() looks at, before and after each change: 1. Each segment begins at a
// region of the pool's range and is of whole pages; no two share a region, and segments to come lie
// behind all of them. 2. What is carved lies within its segment, in whole cache lines; of a segment
// that another process made all is. 3. A segment of this pool's own has its index as its number,
// and may be written. 4. Each has the descriptor of its file, which is no standard stream's.
// 5. A file is shut to writers by the seal alone, and only where that is to shut it. 6. What is
// sealed can neither shrink nor grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pinned_pool/layout.h"
#include "pinned_pool/plan.h"
#include "pinned_pool/pool_map.h"
#include "platform/file.h"
#include "platform/hugepage.h"
#include "platform/numa.h"
#include "platform/result.h"
#include "platform/thread_owner.h"

namespace bedplate {

class Progress;

// Owned by its pool, at the same address until the process ends. Programs read it.
struct Segment {
  OwnerName owner;
  uint32_t number = 0;  // in its owner's pool: the same in every process that has joined
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  PageSize page = PageSize::k4KiB;
  int memfd = -1;       // -1: it is private
  uint64_t device = 0;  // which file the memfd is: its number could come to be another's
  uint64_t inode = 0;
  uint64_t carved_bytes = 0;  // from the front
  int node = kAnyNode;
  int lock_errno = 0;       // why 4 KiB pages could not be locked; 0: locked, or hugepages
  bool is_writable = true;  // mapped so here; what another pool's owner granted may be read-only
  // Whether it is registered with devices: not what an untrusted process may write at any time.
  bool is_for_devices = true;
  bool is_own = true;  // made by this pool, and not taken over from another's owner
  // Whether the pool's seal shuts its memfd to further writers. Not where joiners are to write.
  bool takes_write_seal = true;
  bool has_write_seal = false;  // set by the pool's seal

  std::span<std::byte> memory() const noexcept { return {address, bytes}; }
  // Whether it is memory of this process alone, of which a forked child gets a copy.
  bool is_private() const noexcept { return memfd < 0; }
  // Whether its descriptor still stands for its file: a program can close it, and another file get
  // its number.
  bool has_its_memfd() const noexcept;
};

// A segment that the owner of a pool hands to a process that joins.
struct OfferedSegment {
  OwnerName owner;
  uint32_t number = 0;  // there
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t page_bytes = 0;
  bool is_writable = false;
  bool is_for_devices = true;
};

struct TakeAttempt;

class PinnedPool {
 public:
  // A pool whose first segment will lie at `base`, a multiple of kRegionBytes. Programs use
  // process_pool(); tests make pools of their own beside it.
  explicit constexpr PinnedPool(uintptr_t base) noexcept : base_(base) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Creates one segment and takes its pages, from `node` and no other: mapped, bound, populated by
  // `thread_count` threads at once (the kernel zeroes each page as it is taken), locked. With one
  // thread nothing is allocated, so the first malloc of the process can come here.
  // Requires: not sealed; `bytes` is a multiple of the page, not 0; has_room_for(bytes).
  // Threads: one at a time; others may look at the segments that there are.
  // Errors (kSystem): the system's, with the owner and the cure; there is no such segment then. A
  // 4 KiB segment that cannot be locked is no error here (Segment::lock_errno says why): the
  // process may be a tool that never serves; preflight refuses it for those that do.
  // `progress`, where there is one, is told of each piece that was taken.
  Result<Segment*> create_segment(const OwnerName& owner, uint64_t bytes, PageSize page,
                                  unsigned thread_count, int node = kAnyNode,
                                  Progress* progress = nullptr);

  // The same for private memory: it has no file, its pages are of 4 KiB, of any node, and the
  // kernel is asked to make hugepages of them where it can. It cannot be sealed, offered to others
  // or registered: for the heap of a program that does none of these (fork_rule.h).
  Result<Segment*> create_private_segment(const OwnerName& owner, uint64_t bytes,
                                          unsigned thread_count);

  // Makes segment 0 larger by `bytes`, in place: its owner is older than any plan. Nothing of it
  // moves. The new pages are taken and locked as create_segment() does with one thread: nothing is
  // allocated, so a malloc can come here that found no memory.
  // Requires: not sealed; it is the only segment; whole pages. Threads: one, and no other looks.
  // Returns false, with errno, and changes nothing, where the system has no more, or the range.
  bool grow_first_segment(uint64_t bytes) noexcept;

  // Maps a segment that another process made, at the address that it has there. Nothing in
  // `offered` is taken on trust: it lies at the start of a region of this pool's range, overlaps no
  // segment, and the memfd has its size, its page, exactly the rights that were promised, and can
  // neither shrink nor grow. `memfd` is kept as long as the process lives. Its pages were taken and
  // locked by its maker; nothing is touched here. Allocates nothing.
  // Requires: not sealed. Errors (kSystem): which of these does not hold, or the system's.
  Result<Segment*> adopt_segment(const OfferedSegment& offered, Fd memfd) noexcept;

  // Creates every segment of `plan` but the first, which exists since before main, and which cannot
  // grow any more. Where that takes long it says how far it is (platform/progress.h).
  // Requires: not sealed; segment(0) is the only one, and as large as the plan's first.
  // Errors: create_segment's, for the first that fails; those before it stay.
  Result<void> reserve(const PoolPlan& plan, unsigned thread_count);

  // Whether its segments are those of `plan`, in its order, and no more of any was handed out than
  // that says; of segment 0, which is older than the plan, nothing is said.
  bool is_as_planned(const PoolPlan& plan) const noexcept;

  // Hands `bytes` of `segment` to `owner`, cache-line aligned, zeroed, for as long as the process
  // lives. Requires: not sealed, a multiple of the cache line, and it fits (the plan says so):
  // anything else is a programming error.
  std::span<std::byte> carve(Segment& segment, const OwnerName& owner, uint64_t bytes) noexcept;

  // The segments' files become the user's: a process that runs as it can open them anew then, to
  // hand them out. Requires: not sealed. Errors (kSystem): the system's.
  Result<void> give_files(uid_t user, gid_t group) noexcept;

  // From here on the layout is fixed, and the kernel is asked to refuse whatever could take memory
  // away. stoppers() says what it granted. Requires: not sealed; no segment is private.
  void seal() noexcept;

  uintptr_t base() const noexcept { return base_; }
  bool is_sealed() const noexcept { return is_sealed_.load(std::memory_order_acquire); }
  // What stops memory from being taken from under a registration: bits of Stopper
  // (pinned_pool/no_way_back.h), complete once the pool is sealed.
  uint32_t stoppers() const noexcept { return stoppers_.load(std::memory_order_relaxed); }
  // For what is put in force from outside: a device that holds the pages, a filter.
  // Threads: any.
  void add_stoppers(uint32_t stoppers) noexcept {
    stoppers_.fetch_or(stoppers, std::memory_order_relaxed);
  }
  // Threads: any; each segment that it counts is whole.
  uint32_t segment_count() const noexcept {
    return segment_count_.load(std::memory_order_acquire);  // pairs with create_segment's
  }
  // Whether one more segment of `bytes` finds its addresses.
  bool has_room_for(uint64_t bytes) const noexcept {
    return segment_count() < kSegmentCountMax &&
           next_region_ + regions_of(bytes) <= kRegionCountMax;
  }
  const Segment& segment(uint32_t index) const noexcept {
    BP_ASSERT(index < segment_count());
    return segments_[index];
  }
  Segment& segment(uint32_t index) noexcept {
    BP_ASSERT(index < segment_count());
    return segments_[index];
  }
  // The first segment of this owner, or nullptr.
  Segment* find_segment(const OwnerName& owner) noexcept;

  // The segment that `pointer` lies in, or nullptr. Cost, also of the next two: a comparison for
  // each segment.
  const Segment* segment_of(const void* pointer) const noexcept;

  // Whether [pointer, pointer + bytes) lies wholly inside one segment.
  bool contains(const void* pointer, uint64_t bytes) const noexcept;

  // Whether any byte of [pointer, pointer + bytes) lies in a segment.
  bool overlaps(const void* pointer, uint64_t bytes) const noexcept;

  uint64_t total_bytes() const noexcept;

  // The present layout as plain data, into *map.
  void write_map(PoolMap* map) const noexcept;

  // Whether the invariants hold. Cost: a look at each segment.
  // Threads: any once it is sealed, before that the one that makes it.
  bool is_valid() const noexcept;

 private:
  bool is_valid(const Segment& segment) const noexcept;
  std::byte* next_address() const noexcept {
    return reinterpret_cast<std::byte*>(base_ + next_region_ * kRegionBytes);
  }
  // A private segment has no open `memfd`.
  Result<Segment*> take(const TakeAttempt& attempt, Fd memfd, unsigned thread_count,
                        Progress* progress);
  void end_growth() noexcept;

  uintptr_t base_;
  ThreadOwner maker_;  // the thread that changes it just now
  uint64_t next_region_ = 0;
  std::atomic<uint32_t> segment_count_{0};
  std::atomic<uint32_t> stoppers_{0};
  std::atomic<bool> is_sealed_{false};
  Segment segments_[kSegmentCountMax];
};

// The pool of this process. It exists before any constructor runs.
PinnedPool& process_pool() noexcept;

}  // namespace bedplate
