// The joiner's side: maps what the owner of a pool grants, at the addresses that it has there.
//
// A process joins once in its life, before its other threads and its rings exist. Nothing of the
// pool is ever unmapped: to join again after leave(), or after the owner is gone, a process starts
// anew. So a pointer into a joined pool never dangles, and no process comes back to an old pool.
// It sends nothing to other members; the transport does.
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

// The steps of a join; for tests that end the process there.
enum class JoinStep { kConnected, kAsked, kAnswered, kMapped, kChecked };
inline constexpr int kJoinStepCount = 5;

struct JoinOptions {  // only join() reads its texts
  const char* socket_path = "";
  const char* process = "";   // its name in the owner's configuration; 31 bytes at most
  uint32_t member_count = 1;  // 1 to join::kMemberCountMax
  // The time for the owner to be there, to answer, and to have a place.
  uint64_t timeout_ns = 5 * kNsPerSecond;
  std::optional<uid_t> owner_uid = {};  // the owner must have this user; nothing: any
  PinnedPool* pool = &process_pool();
  void (*at_step)(JoinStep step) = nullptr;
};

// Threads: one at a time, except for functions that say any. Ownership: returned data lie in this
// object or in the pool's mappings; it does not own these, and they outlive it.
//
// Invariants, which is_valid() checks from join() on: 1. The table is that of the joined pool. 2.
// It has 1 to join::kMemberCountMax members, all of them in the table. 3. The FIFOs, and its heap
// if it has one, are segments that another process made and that this one may write. 4. The owner's
// layout and terms fit their arrays.
class JoinedPool {
 public:
  // Asks, maps and checks, and takes all segments into options.pool. Others see its members as
  // joining until ready() is called. Allocates nothing. If no place is free it tries again until
  // its timeout, both if the places' processes live and if they are not forgotten yet. A cause that
  // cannot pass (an unknown name, the wrong user) is an error at once.
  // Requires: options.pool is not sealed. Threads: before others run.
  // Errors (kSystem): the owner's reason; or a fault in its packets, which the owner is told, too.
  // After an error with segments mapped this process cannot try again; before, it can.
  // Cost: 6 system calls and 5 for each segment; 14 of the owner's.
  static Result<JoinedPool> join(const JoinOptions& options) noexcept;

  JoinedPool(JoinedPool&&) noexcept = default;

  // Has the others see its members as alive: they do when this returns. Waits for the owner for
  // 10 s at most. Errors (kSystem): the owner is gone, hangs, or has cut this process off (it took
  // too long, say).
  Result<void> ready() noexcept;

  // Called instead of ready(): this process cannot use its part, and ends. The owner logs `error`.
  void fail(const Error& error) noexcept;

  // Says goodbye: its members are dead to the others at once. The mappings stay, but the process
  // must not use them any more; it closes its rings before. Its place is given out again when the
  // process has ended. An end without leave() is a death: the same, with a message in the owner's
  // log.
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

// The write end of the process's quiet pipe; -1: it has not joined. Every ring registers it as a
// file, so that the owner hears it hang up only when no ring of a dead process can write any more:
// the kernel takes rings down after their process. Threads: any.
int quiet_fd() noexcept;

}  // namespace bedplate
