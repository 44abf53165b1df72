// PinnedPool: all memory of the process that devices and peers may access.
//
// Each segment is a memfd, sealed against shrinking and growing, mapped at a fixed address; its
// pages are taken and locked before any use. (There are two exceptions. Segment 0 may grow until
// there is a second segment, and gets its seals then. The heap of a program that shares it with no
// other process is private memory, which a fork copies; fork_rule.h.) Between reserve and seal
// services carve their parts. After the seal the layout never changes, and the ways back are
// stopped (no_way_back.h lists them with their stoppers; stoppers() says which are in force). No
// memory is given back before the process ends: there is no function for it.
//
// The pool knows no device and no allocator; transport/registration and alloc/ stand on it.
//
// Threads: one at a time until the seal; from then on nothing changes, and any thread may call the
// const functions.
//
// Invariants, which is_valid() checks before and after each change: 1. Each segment begins at a
// region of the pool's range and has whole pages; no two share a region, and the next segment that
// this pool makes lies behind all of them. 2. Carves lie within their segment, in whole cache
// lines; a segment that another process made is carved as a whole. 3. A segment of this pool's own
// has its index as its number, and is writable. 4. Each segment with a file has the file's
// descriptor, above the standard streams. 5. Only the pool's seal sets a write seal, and only on
// segments that take one. 6. The segments of a sealed pool can neither shrink nor grow.
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

// Owned by its pool, at the same address until the process ends. Programs may read it.
struct Segment {
  OwnerName owner;
  uint32_t number = 0;  // in the owner's pool: the same in every process that joined
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  PageSize page = PageSize::k4KiB;
  int memfd = -1;  // -1: it is private
  // The memfd's st_dev and st_ino: after a close another file may get the descriptor's number.
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t carved_bytes = 0;  // from the front
  int node = kAnyNode;
  // Why this process has not locked the 4 KiB pages; 0: they are locked, or are hugepages. EPERM
  // for an adopted segment: its maker locks them.
  int lock_errno = 0;
  bool is_writable = true;  // in this process; an owner may grant it read-only
  // Whether it is registered with devices: not if an untrusted process may write it at any time.
  bool is_for_devices = true;
  bool is_own = true;  // made by this pool, not adopted from another process
  // Whether the pool's seal sets a write seal on its memfd: not if joiners are to write it.
  bool takes_write_seal = true;
  bool has_write_seal = false;  // set by the pool's seal

  std::span<std::byte> memory() const noexcept { return {address, bytes}; }
  // Whether only this process has it; a forked child gets a copy.
  bool is_private() const noexcept { return memfd < 0; }
  // Whether its descriptor still refers to its file: a program can close it, and another file can
  // get its number.
  bool has_its_memfd() const noexcept;
};

// A segment that the owner of a pool hands to a process that joins.
struct OfferedSegment {
  OwnerName owner;
  uint32_t number = 0;  // in the owner's pool
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
  // process_pool(); tests make further pools.
  explicit constexpr PinnedPool(uintptr_t base) noexcept : base_(base) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Creates one segment and takes its pages, from `node` only: it maps, binds and locks them, and
  // `thread_count` threads populate them in parallel (the kernel zeroes each page as it is taken).
  // With one thread nothing is allocated, so the first malloc of the process can call this.
  // `progress` gets the bytes of each taken chunk, from the thread that took it; may be nullptr.
  // Requires: not sealed; `bytes` is a multiple of the page, not 0; has_room_for(bytes).
  // Threads: one at a time; others may look at the existing segments.
  // Errors (kSystem): the system's, with the owner and the cure, or a blocked stop signal is
  // pending (stop_signals.h); then there is no such segment. Failure to lock 4 KiB pages is no
  // error here (Segment::lock_errno has the cause): a tool never serves and may go on with unlocked
  // pages. An appliance refuses to start with them.
  Result<Segment*> create_segment(const OwnerName& owner, uint64_t bytes, PageSize page,
                                  unsigned thread_count, int node = kAnyNode,
                                  Progress* progress = nullptr);

  // The same for private memory: without a file, in pages of 4 KiB from any node; the kernel may
  // use huge pages instead. A pool with such a segment cannot be sealed, offered to others or
  // registered: it is the heap of a program that does none of these (fork_rule.h).
  Result<Segment*> create_private_segment(const OwnerName& owner, uint64_t bytes,
                                          unsigned thread_count);

  // Makes segment 0 larger by `bytes`, in place, before there is a plan. Nothing in it moves. The
  // new pages are taken and locked as create_segment() does with one thread: nothing is allocated,
  // so a malloc that found no memory can call this.
  // Requires: not sealed; it is the only segment; whole pages. Threads: one, while no other looks.
  // Returns false, with errno, if the system has no more memory, or if the segment would take more
  // than half of the pool's range. Then the segment and its file are as before.
  bool grow_first_segment(uint64_t bytes) noexcept;

  // Maps a segment that another process made, at the address that it has there. `offered` is not
  // trusted: the segment must lie at the start of a region of this pool's range and overlap no
  // other; the memfd must have the offered size, page and exactly the promised rights, and be
  // unable to shrink or grow. `memfd` stays open until the process ends. The maker has taken and
  // locked the pages; this touches none. Allocates nothing.
  // Requires: not sealed; no segment is private; `memfd` is above the standard streams.
  // Errors (kSystem): the check that failed, or the system's; then `memfd` is closed.
  Result<Segment*> adopt_segment(const OfferedSegment& offered, Fd memfd) noexcept;

  // Creates every segment of `plan` but the first, which has existed since before main; it cannot
  // grow after this call. Long work reports its progress (platform/progress.h). Requires: not
  // sealed; segment(0) is the only one, and as large as the plan's first.
  // Errors: create_segment's, for the first segment that fails; earlier ones stay.
  Result<void> reserve(const PoolPlan& plan, unsigned thread_count);

  // Whether its segments are those of `plan`, in its order, and none has more carved than planned.
  // Nodes are not compared. Segment 0 exists before the plan: only its size is compared.
  bool is_as_planned(const PoolPlan& plan) const noexcept;

  // Hands `bytes` of `segment` to `owner`, cache-line aligned, zeroed, until the process ends. The
  // pool does not record the owner. Requires: not sealed; the segment is this pool's own; `bytes`
  // is a multiple of the cache line, and fits, by the plan. A violation is a programming error.
  std::span<std::byte> carve(Segment& segment, const OwnerName& owner, uint64_t bytes) noexcept;

  // Changes the owner of the segments' files to `user` and `group`, so that a process that runs as
  // this user can open them again, to hand them out. A segment without its file is left out.
  // Requires: not sealed. Errors (kSystem): the system's; earlier files stay changed.
  Result<void> give_files(uid_t user, gid_t group) noexcept;

  // Fixes the layout, and asks the kernel to refuse all calls that could take memory away.
  // stoppers() has the result. Requires: not sealed; no segment is private.
  void seal() noexcept;

  uintptr_t base() const noexcept { return base_; }
  bool is_sealed() const noexcept { return is_sealed_.load(std::memory_order_acquire); }
  // The stoppers in force against the ways back (pinned_pool/no_way_back.h): bits of Stopper. The
  // seal adds those of the pool; callers of add_stoppers() may add others later.
  uint32_t stoppers() const noexcept { return stoppers_.load(std::memory_order_relaxed); }
  // Adds stoppers from outside the pool: a device that holds the pages, a filter.
  // Threads: any.
  void add_stoppers(uint32_t stoppers) noexcept {
    stoppers_.fetch_or(stoppers, std::memory_order_relaxed);
  }
  // Threads: any; each counted segment is complete.
  uint32_t segment_count() const noexcept {
    return segment_count_.load(std::memory_order_acquire);  // pairs with create_segment's
  }
  // Whether the address range and the table have space for one more segment of `bytes`.
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

  // The segment that `pointer` lies in, or nullptr. Cost, also of the next two functions: a
  // comparison for each segment.
  const Segment* segment_of(const void* pointer) const noexcept;

  // Whether [pointer, pointer + bytes) lies wholly inside one segment.
  bool contains(const void* pointer, uint64_t bytes) const noexcept;

  // Whether any byte of [pointer, pointer + bytes) lies in a segment.
  bool overlaps(const void* pointer, uint64_t bytes) const noexcept;

  uint64_t total_bytes() const noexcept;

  // Writes the present layout as plain data into *map.
  void write_map(PoolMap* map) const noexcept;

  // Whether the invariants hold. Cost: a look at each segment.
  // Threads: any once the pool is sealed; before, the thread that makes it.
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
  ThreadOwner maker_;  // the thread that changes the pool now
  uint64_t next_region_ = 0;
  std::atomic<uint32_t> segment_count_{0};
  std::atomic<uint32_t> stoppers_{0};
  std::atomic<bool> is_sealed_{false};
  Segment segments_[kSegmentCountMax];
};

// The pool of this process. It exists before any constructor runs.
PinnedPool& process_pool() noexcept;

}  // namespace bedplate
