// The joiner's side: maps what the owner of a pool grants, at the addresses that it has there.
//
// A process joins once in its life, and before its other threads and its rings exist. Nothing of
// the pool is ever unmapped: a process that left, or whose pool's owner is gone, starts anew to
// join again. So a pointer into a joined pool never dangles, and nobody comes back to an old pool.
// What it does not do: say anything to other members; that is the transport's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sys/types.h>

#include "pinned_pool/join/join_protocol.h"
#include "pinned_pool/join/membership.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/file.h"
#include "platform/result.h"
#include "platform/units.h"

namespace bedplate {

// What a process is between as it joins; for tests that end it there.
enum class JoinStep { kConnected, kAsked, kAnswered, kMapped, kChecked };
inline constexpr int kJoinStepCount = 5;

struct JoinOptions {  // its texts are read by join() alone
  const char* socket_path = "";
  const char* process = "";   // its name in the owner's configuration; 31 bytes at most
  uint32_t member_count = 1;  // 1 to join::kMemberCountMax
  // For the owner to be there, to answer, and to have a place.
  uint64_t timeout_ns = 5 * kNsPerSecond;
  std::optional<uid_t> owner_uid = {};  // the owner must have this user; nothing: any
  PinnedPool* pool = &process_pool();
  void (*at_step)(JoinStep step) = nullptr;
};

// Threads: one at a time, but for what is said to be for any. Ownership: what it returns lies in
// this object or in the pool's mappings; of these it owns none, they outlive it.
//
// Invariants, which is_valid() looks at, from join() on: 1. The table is that of the pool which was
// joined. 2. It has 1 to join::kMemberCountMax members, all of them in the table. 3. The FIFOs are
// another process's segment, which this one may write, as is its heap where it has one. 4. What the
// owner said fits where it is kept.
class JoinedPool {
 public:
  // Asks, maps and checks, and takes all segments into options.pool. Others see its members as
  // joining until ready() is called. Allocates nothing. Where no place is free it tries again until
  // its time is over, whether those who have them live or are not forgotten yet; what time cannot
  // cure (an unknown name, the wrong user) is told at once.
  // Requires: options.pool is not sealed. Threads: before others run.
  // Errors (kSystem): the owner's reason, or what is wrong with what it sent, which the owner is
  // told, too.
  // After an error once segments were mapped this process cannot try again; before, it can.
  // Cost: 6 system calls and 5 for each segment; 14 of the owner's.
  static Result<JoinedPool> join(const JoinOptions& options) noexcept;

  JoinedPool(JoinedPool&&) noexcept = default;

  // When this returns the others see its members as alive. Waits for the owner for 10 s at most.
  // Errors (kSystem): the owner is gone, hangs, or has cut this process off (it took too long,
  // say).
  Result<void> ready() noexcept;

  // Instead of ready(): this process cannot use its part, and ends. The owner logs why.
  void fail(const Error& error) noexcept;

  // Says goodbye: its members are dead to the others at once. The mappings stay, and nothing of
  // them is used any more; rings are closed before. Its place is given out again when the process
  // has ended. To end without it is a death: the same, with a message in the owner's log.
  void leave() noexcept;

  const PoolId& pool_id() const noexcept { return pool_id_; }
  const OwnerName& group_name() const noexcept { return group_; }
  std::span<const join::MemberGrant> members() const noexcept { return {members_, member_count_}; }
  const MembersTable& table() const noexcept { return *table_; }
  // What the owner's transport says of the group's layout.
  std::span<const std::byte> layout() const noexcept { return {layout_, layout_bytes_}; }
  // What it says of this process alone.
  std::span<const std::byte> terms() const noexcept { return {terms_, terms_bytes_}; }
  Segment& fifo() const noexcept { return *fifo_; }
  Segment* own_heap() const noexcept { return own_heap_; }  // nullptr: it has none

  // Whether the owner died or stopped. Once so, always. Threads: any. Cost: one relaxed load.
  bool is_owner_gone() const noexcept { return table_->is_owner_gone(); }
  // Readable when the owner is gone: for an event loop that sleeps. -1 after leave().
  // Ownership: this object's; it is not read from.
  int control_fd() const noexcept { return socket_.number(); }

  bool is_valid() const noexcept;

 private:
  JoinedPool() noexcept = default;
  Result<void> ask(const JoinOptions& options, uint64_t deadline_ns, join::Accepted* accepted,
                   std::span<Fd> descriptors, bool* may_come) noexcept;
  Result<void> take(const join::Accepted& accepted, std::span<Fd> descriptors,
                    const JoinOptions& options) noexcept;

  Fd socket_;
  PoolId pool_id_;
  OwnerName group_;
  const MembersTable* table_ = nullptr;
  Segment* fifo_ = nullptr;
  Segment* own_heap_ = nullptr;
  uint32_t member_count_ = 0;
  uint32_t layout_bytes_ = 0;
  uint32_t terms_bytes_ = 0;
  join::MemberGrant members_[join::kMemberCountMax] = {};
  std::byte layout_[join::kLayoutBytesMax] = {};
  std::byte terms_[join::kTermsBytesMax] = {};
};

// The write end of the process's quiet pipe, -1 where it has not joined. Every ring registers it as
// a file, so that the owner hears it hang up only when no ring of a dead process may write any
// more: the kernel takes rings down after their process. Threads: any.
int quiet_fd() noexcept;

}  // namespace bedplate
