// The members table of a group: the state of each member, and the owner's life.
//
// It lies in a segment that only the owner of the pool writes (owner `members`); every joined
// process maps it read-only. The owner's control thread changes an entry first and the epoch after
// it. So a polling member compares one word in one line with its last value, and reads the entries
// only if that has changed. The owner's own life is a word beside the epoch. The kernel clears the
// word when the owner dies: a member sees that without a system call. join_roster.h describes how a
// process comes into the table, docs/join.md describes the bytes.
//
// The table also has the segments that the process of each member has mapped, and its rights to
// them: a member's message about memory is valid only within these rights.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "pinned_pool/layout.h"
#include "pinned_pool/join/owner_life.h"
#include "platform/assert.h"
#include "platform/cache_line.h"
#include "platform/result.h"

namespace bedplate {

// Identifies a pool: no two pools have the same id, not even before and after a restart of one
// machine.
struct PoolId {
  uint64_t random = 0;
  uint64_t born_ns = 0;  // since 1970 (CLOCK_REALTIME)

  bool operator==(const PoolId&) const noexcept = default;
};

// Makes a new id, of random bytes and the time.
Result<PoolId> make_pool_id() noexcept;

// The states of a member, in this order, and then kFree again (docs/join.md, "Life of a member").
enum class MemberState : uint8_t {
  kFree,     // no process has this entry
  kJoining,  // its process has its part and is not ready yet
  kAlive,
  kDead,   // its process left or ended; devices may still write for it
  kQuiet,  // its process has ended and all its rings are torn down
};

// "free", "joining", ...: static text; "unknown" for any other value.
const char* to_text(MemberState state) noexcept;

struct MemberName {
  char text[32] = {};  // terminated

  MemberName() noexcept = default;
  explicit MemberName(std::string_view name) noexcept;  // truncated at 31 bytes
};

// A member's generation and state, which change together.
struct MemberWord {
  uint64_t generation = 0;  // the number of joins into this entry, including the present one
  MemberState state = MemberState::kFree;

  bool operator==(const MemberWord&) const noexcept = default;
};

// The segments of the pool that a process has mapped, by Segment::number.
struct SegmentRights {
  static constexpr uint32_t kWordCount = kSegmentCountMax / 64;

  // The owner's rights: it may write every segment.
  static SegmentRights all() noexcept;
  void add(uint32_t segment, bool is_writable) noexcept {
    BP_ASSERT(segment < kSegmentCountMax);
    readable[segment / 64] |= uint64_t{1} << (segment % 64);
    if (is_writable) writable[segment / 64] |= uint64_t{1} << (segment % 64);
  }

  bool may_read(uint32_t segment) const noexcept {
    BP_ASSERT(segment < kSegmentCountMax);
    return (readable[segment / 64] >> (segment % 64) & 1) != 0;
  }

  uint64_t readable[kWordCount] = {};  // bits; a writable segment is readable, too
  uint64_t writable[kWordCount] = {};
};

struct alignas(kCacheLineBytes) MemberEntry {
  std::atomic<uint64_t> word;  // generation << 8 | state
  std::atomic<uint32_t> pid;
  uint32_t reserved;
  std::atomic<uint64_t> changed_epoch;  // the epoch of the last change of this entry
  std::atomic<uint64_t> name[4];        // atomic: a later process in this entry renames it
  alignas(kCacheLineBytes) std::atomic<uint64_t> readable[SegmentRights::kWordCount];
  std::atomic<uint64_t> writable[SegmentRights::kWordCount];
};
static_assert(sizeof(MemberEntry) == 2 * kCacheLineBytes);
static_assert(sizeof(MemberEntry::name) == sizeof(MemberName));

class MembersTable {
 public:
  static constexpr uint64_t kMagic = 0x316d'656d'7064'6562;  // "bedpmem1"
  static constexpr uint32_t kVersion = 3;
  static constexpr uint32_t kMemberCountMax = 4096;

  static constexpr uint64_t bytes_for(uint32_t member_count) noexcept;

  // Owner: makes a table of free members in `memory`. Requires: `memory` is zeroed, writable,
  // aligned to a cache line and at least bytes_for(member_count) long; 1 <= member_count <= max.
  static MembersTable* create(std::span<std::byte> memory, uint32_t member_count,
                              const PoolId& pool_id) noexcept;

  // Joiner: opens the table in `memory`. Checks that it is a table, of this version, of the pool
  // `pool_id`, and wholly inside. Errors (kSystem): the check that failed.
  // Ownership: the table lies in `memory`, and lives as long; as with create().
  static Result<const MembersTable*> open(std::span<const std::byte> memory,
                                          const PoolId& pool_id) noexcept;

  uint32_t member_count() const noexcept { return member_count_; }
  const PoolId& pool_id() const noexcept { return pool_id_; }

  // ---- For readers. Threads: any, in any process. Requires: member < member_count(). ----

  // Pairs with the release in every change: a reader that sees an epoch sees all entries up to it.
  // Cost: one load of the table's first line, which changes only with the epoch and with the
  // owner's death.
  uint64_t epoch() const noexcept { return epoch_.load(std::memory_order_acquire); }

  // Whether the owner has died or stopped. Cost: one relaxed load, of the same line as the epoch.
  bool is_owner_gone() const noexcept { return !owner_life_.is_held(); }

  MemberWord word(uint32_t member) const noexcept {
    const uint64_t word = entry(member).word.load(std::memory_order_acquire);
    return {word >> 8, static_cast<MemberState>(word & 0xff)};
  }
  MemberState state(uint32_t member) const noexcept { return word(member).state; }
  uint64_t generation(uint32_t member) const noexcept { return word(member).generation; }
  // The process id in the owner's PID namespace.
  uint32_t pid(uint32_t member) const noexcept {
    return entry(member).pid.load(std::memory_order_relaxed);
  }
  uint64_t changed_epoch(uint32_t member) const noexcept {
    return entry(member).changed_epoch.load(std::memory_order_relaxed);
  }
  MemberName name(uint32_t member) const noexcept;
  // Whether the member's process, of the present generation, has the segment mapped; may_write():
  // mapped writable. false for a segment number that is too large.
  bool may_read(uint32_t member, uint32_t segment) const noexcept {
    return has_bit(entry(member).readable, segment);
  }
  bool may_write(uint32_t member, uint32_t segment) const noexcept {
    return has_bit(entry(member).writable, segment);
  }

  // ---- For the writer: the control thread; before it runs, the thread that makes the pool. ----

  // kFree -> kJoining: begins a new generation, with a name, a process and its rights. Bumps the
  // epoch. Requires: the member is free.
  void begin_join(uint32_t member, uint32_t pid, const MemberName& name,
                  const SegmentRights& rights) noexcept;
  // Makes every other change. Bumps the epoch. Requires: `state` is not kJoining. The roster keeps
  // the order of states.
  void set_state(uint32_t member, MemberState state) noexcept;

  // Makes the table show the owner as alive until this thread releases it or ends in any way; then
  // the kernel clears the word. Called once. Errors: OwnerLife::hold.
  Result<void> hold_owner_life() noexcept;
  // Makes the table show the owner as gone. Called by the same thread, at an orderly end.
  void release_owner_life() noexcept;

  // Invariants, checked by the writer before and after each change: 1. The entry that changed last
  // did so in the present epoch, the others in earlier epochs, each in its own. 2. An entry that no
  // process has joined is free, and has never changed. 3. A member may read each segment that it
  // may write. 4. Each generation began in an epoch of its own. 5. The header is as create() wrote
  // it.
  bool is_valid() const noexcept;

 private:
  static bool has_bit(const std::atomic<uint64_t>* words, uint32_t segment) noexcept {
    return segment < kSegmentCountMax &&
           (words[segment / 64].load(std::memory_order_relaxed) >> (segment % 64) & 1) != 0;
  }
  const MemberEntry* entries() const noexcept;
  const MemberEntry& entry(uint32_t member) const noexcept {
    BP_DCHECK(member < member_count_);
    return entries()[member];
  }
  MemberEntry& entry(uint32_t member) noexcept {
    BP_ASSERT(member < member_count_);
    return const_cast<MemberEntry&>(entries()[member]);
  }
  bool is_valid(const MemberEntry& entry) const noexcept;
  void publish(MemberEntry& entry, const MemberWord& word) noexcept;

  friend struct MembersTableLayout;

  std::atomic<uint64_t> magic_;  // stored last
  uint32_t version_;
  uint32_t member_count_;
  PoolId pool_id_;
  std::atomic<uint64_t> epoch_;
  OwnerLife owner_life_;
};

inline constexpr uint64_t kMembersHeaderBytes = 2 * kCacheLineBytes;

struct MembersTableLayout {
  static_assert(sizeof(MembersTable) <= kMembersHeaderBytes);
  static_assert(offsetof(MembersTable, member_count_) == 12);
  static_assert(offsetof(MembersTable, pool_id_) == 16);
  static_assert(offsetof(MembersTable, epoch_) == 32);
  static_assert(offsetof(MembersTable, owner_life_) == 40);
  // The line that members poll holds the epoch, then the word of the owner's life.
  static_assert(offsetof(MembersTable, owner_life_) + sizeof(uint32_t) <= kCacheLineBytes);
};
static_assert(std::is_standard_layout_v<MembersTable>);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t MembersTable::bytes_for(uint32_t member_count) noexcept {
  return kMembersHeaderBytes + uint64_t{member_count} * sizeof(MemberEntry);
}

inline const MemberEntry* MembersTable::entries() const noexcept {
  return reinterpret_cast<const MemberEntry*>(reinterpret_cast<const std::byte*>(this) +
                                              kMembersHeaderBytes);
}

}  // namespace bedplate
