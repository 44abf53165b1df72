// The joiner's side: maps the segments that the owner of a pool grants, at the owner's addresses.
//
// A process joins at most once, before its other threads and its rings exist. The pool is never
// unmapped: to join again after leave(), or after the owner is gone, a process restarts. So a
// pointer into a joined pool never dangles, and no process comes back to an old pool. JoinedPool
// sends no messages to other members; the transport does.
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

// The steps of a join, for tests that end the process after one of them.
enum class JoinStep { kConnected, kAsked, kAnswered, kMapped, kChecked };
inline constexpr int kJoinStepCount = 5;

struct JoinOptions {  // join() keeps no pointer to its texts
  const char* socket_path = "";
  const char* process = "";   // its name in the owner's configuration; 31 bytes at most
  uint32_t member_count = 1;  // 1 to join::kMemberCountMax
  // The time limit for the owner to appear, to answer, and to have a free place.
  uint64_t timeout_ns = 5 * kNsPerSecond;
  std::optional<uid_t> owner_uid = {};  // the required user of the owner; nothing: any
  PinnedPool* pool = &process_pool();
  void (*at_step)(JoinStep step) = nullptr;
};

// Threads: one at a time, except for functions that say any.
// Ownership: returned data lie in this object or in the pool's mappings. The mappings outlive this
// object. Its destructor closes the connection: without leave(), the owner then declares this
// process dead.
//
// Invariants, which is_valid() checks from join() on: 1. The table belongs to the joined pool. 2.
// This process has 1 to join::kMemberCountMax members, all of them in the table. 3. The FIFOs, and
// its heap if it has one, are segments that another process made and that this process may write.
// 4. The owner's layout and terms fit their arrays.
class JoinedPool {
 public:
  // Asks, maps and checks, and takes all segments into options.pool. Other members see its members
  // as joining until ready() is called. Allocates nothing. If no place is free, it tries again
  // until its timeout. A place is not free while its process lives, or is dead and not forgotten
  // yet. A permanent cause (an unknown name, the wrong user) is an error at once.
  // Requires: options.pool is not sealed. Threads: before others run.
  // Errors: a socket path of the wrong length (kConfiguration). The others are kSystem: the owner's
  // reason; or a fault in the owner's packets, which this function also reports to the owner. Once
  // it has begun to map segments, this process cannot try again after an error; before, it can.
  // Cost: 6 system calls and 5 for each segment; 14 of the owner's.
  static Result<JoinedPool> join(const JoinOptions& options) noexcept;

  JoinedPool(JoinedPool&&) noexcept = default;

  // Makes its members alive: the other members see them as alive when this returns. Waits for the
  // owner for some 10 s at most.
  // Errors (kSystem): the owner is gone, hangs, or has cut this process off (after its timeout,
  // say).
  Result<void> ready() noexcept;

  // Called instead of ready(), if this process cannot use its part and ends. The owner logs
  // `error`.
  void fail(const Error& error) noexcept;

  // Leaves the pool: the other members see its members as dead once the owner has read the message.
  // Does not wait for that. The mappings stay, but the process must not use them any more; it
  // closes its rings before this call. Its place becomes free after the process has ended. An end
  // without leave() is a death: it has the same effect, and the owner logs a message. Requires:
  // ready() has succeeded; the owner takes an earlier leave() for an invalid message.
  void leave() noexcept;

  const PoolId& pool_id() const noexcept { return pool_id_; }
  const OwnerName& group_name() const noexcept { return group_; }
  std::span<const join::MemberGrant> members() const noexcept { return {members_, member_count_}; }
  const MembersTable& table() const noexcept { return *table_; }
  // The group's layout, from the owner's transport.
  std::span<const std::byte> layout() const noexcept { return {layout_, layout_bytes_}; }
  // The terms for this process alone, from the owner's transport.
  std::span<const std::byte> terms() const noexcept { return {terms_, terms_bytes_}; }
  Segment& fifo() const noexcept { return *fifo_; }
  Segment* own_heap() const noexcept { return own_heap_; }  // nullptr: it has none

  // Whether the owner died or stopped; once true, always. Threads: any. Cost: one relaxed load.
  bool is_owner_gone() const noexcept { return table_->is_owner_gone(); }
  // Becomes readable when the owner is gone, or has cut this process off: for an event loop that
  // sleeps. -1 after leave().
  // Ownership: this object's; do not read from it.
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

// The write end of the process's quiet pipe; -1: it has not joined, or has left. Every ring
// registers the pipe as a file, because the kernel may tear rings down after their process. So the
// pipe hangs up at the owner only when no ring of a dead process can write any more. Threads: any.
int quiet_fd() noexcept;

}  // namespace bedplate
