// The roster: the processes that may join, the processes that have joined, and the part of each.
//
// It keeps the account of groups, members and instances (the k-th place of one `[[process]]`).
// join_connections.h has the sockets. A part goes to the next process only when the former one
// cannot access it any more, no member refers to it, its heap is wiped, and its part of the FIFO
// segment is reset. Segments that several processes may write keep their content.
//
// Invariants, which is_valid() checks before and after each change: 1. A part is free, or the table
// has each of its members in the part's state (kQuiet while the part is in kRenewing). 2. Renewed
// bytes are counted only in kRenewing, and lie within a segment that the process may write. 3. Each
// member that is not free belongs to one part, or to the owner. 4. A grant has at most max_count
// processes that are joining or alive. 5. The parts of a grant are adjacent, in the order of their
// numbers, each in its group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sys/types.h>

#include "pinned_pool/join/join_protocol.h"
#include "pinned_pool/join/membership.h"
#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/taken_pages.h"
#include "platform/file.h"
#include "platform/result.h"
#include "platform/user.h"

namespace bedplate {

// The transport's half of a group. The join server calls it on the control thread.
class GroupKeeper {
 public:
  virtual ~GroupKeeper() = default;
  // Resets the member's part of the FIFO segment.
  virtual void reset_member(uint32_t member) noexcept = 0;
  // Called when the member cannot store into the FIFO segment any more: its process has ended, or
  // has announced that it leaves. A process that leaves and then ends causes two calls.
  virtual void stop_writing(uint32_t member) noexcept = 0;
  // Whether every member that may still run has acknowledged `epoch` and holds no loan of `member`.
  virtual bool is_forgotten(uint32_t member, uint64_t epoch) noexcept = 0;
  // Rings every doorbell of the group: the members table has changed.
  virtual void wake_members() noexcept = 0;
};

// Its pointers and its layout outlive the roster.
struct JoinGroup {
  OwnerName name;
  MembersTable* table = nullptr;           // in a segment of the pool
  std::span<const std::byte> layout = {};  // handed to joiners unread; kLayoutBytesMax at most
  Segment* fifo = nullptr;
  GroupKeeper* keeper = nullptr;
};

struct GrantedSegment {
  Segment* segment = nullptr;
  bool is_writable = false;
};

// Whether processes of a kind are outsiders: not trusted, or of a user without full power over this
// process. Outsiders can punch holes into memory that they may write. A hole in 4 KiB pages is
// filled on the next touch; a hole in hugepages may stay for ever. `uid`: the required user;
// nothing: any. `own`: the user of this process.
inline bool is_outsider(bool is_trusted, const std::optional<uid_t>& uid,
                        uid_t own = own_user()) noexcept {
  return !is_trusted || !uid.has_value() || !is_own_user(*uid, own);
}

// One [[process]] of the configuration. Its pointers and its terms outlive the roster.
struct ProcessGrant {
  MemberName name;
  std::optional<uid_t> uid = {};  // nothing: any user
  uint32_t max_count = 1;         // processes of this name at once
  // Spare places let new processes join while places of dead or departed processes are not free
  // yet: a stopped member may still write into such a place. For trusted processes only.
  uint32_t spare_count = 0;
  uint32_t members_max = 1;  // of each process
  // Trusted processes share this group. Each untrusted process has a group of its own: the k-th has
  // group + k.
  uint32_t group = 0;
  bool is_trusted = true;
  std::span<const std::byte> terms = {};  // handed to it unread; kTermsBytesMax at most
  std::vector<GrantedSegment> segments = {};
  // None, or one for each place: a process may write its own heap, and read those of its group.
  std::vector<Segment*> heaps = {};

  uint32_t place_count() const noexcept { return max_count + spare_count; }
};

// Threads: the control thread; before it runs, the thread that makes the pool.
class JoinRoster {
 public:
  struct Options {
    PinnedPool* pool = nullptr;
    PoolId pool_id;
    std::vector<JoinGroup> groups;
    std::vector<ProcessGrant> grants;
  };

  // A place for one process. Its index in the roster identifies it.
  struct Instance {
    enum class State : uint8_t { kFree, kJoining, kAlive, kDead, kQuiet, kRenewing };
    State state = State::kFree;
    uint32_t grant = 0;
    uint32_t number = 0;  // its index within its grant
    uint32_t group = 0;
    uint32_t pid = 0;
    uint32_t member_count = 0;
    uint16_t members[join::kMemberCountMax] = {};
    // While kRenewing: the number of its writable segments already renewed, the renewed bytes of
    // the next segment, and whether the log has a message about pages that were not available.
    uint32_t renewed_segments = 0;
    uint64_t renewed_bytes = 0;
    bool lacks_pages = false;
  };

  // Checks that grants and groups fit together. Opens each segment again for processes that get it
  // read-only, and sets the file's mode so that other users cannot open the descriptor again for
  // writing. Segments that are granted writable do not take the pool's write seal.
  // Requires: before the pool's seal; each table has options.pool_id.
  // Errors: an invalid description, or hugepages that outsiders may write (kConfiguration), or the
  // system's.
  static Result<std::unique_ptr<JoinRoster>> create(Options options);

  uint32_t instance_count() const noexcept { return static_cast<uint32_t>(instances_.size()); }
  const Instance& instance(uint32_t index) const noexcept {
    BP_ASSERT(index < instance_count());
    return instances_[index];
  }
  const ProcessGrant& grant_of(const Instance& instance) const noexcept {
    return options_.grants[instance.grant];
  }
  JoinGroup& group(uint32_t index) noexcept {
    BP_ASSERT(index < group_count());
    return options_.groups[index];
  }
  uint32_t group_count() const noexcept { return static_cast<uint32_t>(options_.groups.size()); }

  // Adds a member of the owner itself, alive at once. The first in a group is member 0. Requires:
  // the group's table has a free member.
  uint32_t add_own_member(uint32_t group, const MemberName& name) noexcept;

  // The grant for a process with this name and this user; kNoGrant: there is none.
  static constexpr uint32_t kNoGrant = UINT32_MAX;
  uint32_t find_grant(const MemberName& name, uid_t uid) const noexcept;
  uint32_t grant_count() const noexcept { return static_cast<uint32_t>(options_.grants.size()); }
  const ProcessGrant& grant(uint32_t index) const noexcept {
    BP_ASSERT(index < grant_count());
    return options_.grants[index];
  }

  // Finds a free instance for a process. Errors: the reason, and the cure. `may_come`: set to true
  // if the cause may pass (an instance or members may become free later), else to false.
  Result<uint32_t> find_place(const join::Request& request, uid_t uid,
                              bool* may_come) const noexcept;
  // Gives a process its part: its members are joining from here on.
  // Requires: find_place() has just found `index` for it.
  void admit(uint32_t index, const join::Request& request, pid_t pid) noexcept;
  // Fills the answer to an admitted process, and `descriptors`, which stay the pool's and the
  // roster's. Returns the number of descriptors; the quiet pipe is not among them.
  uint32_t describe(uint32_t index, join::Accepted* accepted,
                    std::span<int> descriptors) const noexcept;

  void set_alive(uint32_t index) noexcept;
  void set_dead(uint32_t index) noexcept;
  // Its process cannot store into the FIFOs any more: it has ended or left. Does not change the
  // state.
  void set_stopped(uint32_t index) noexcept;
  // Its process has ended and its rings are torn down. Requires: it is dead.
  void set_quiet(uint32_t index) noexcept;

  enum class Release { kNotYet, kRenewing, kFree };
  // Frees the part of a quiet instance, in several calls. Returns kNotYet until the group has
  // forgotten it. Then each call takes a few milliseconds, so that the control thread stays
  // responsive, and returns kRenewing: it wipes a chunk of the heap, or takes again some pages that
  // the process gave back. If pages are not available, returns kNotYet. Returns kFree at the end.
  Release try_release(uint32_t index) noexcept;

  // Whether the invariants hold. Cost: a look at each member of each group and of each part.
  bool is_valid() const noexcept;

 private:
  explicit JoinRoster(Options options) : options_(std::move(options)) {}
  Result<void> check_grant(const ProcessGrant& grant) const noexcept;
  Result<void> check_pages(const ProcessGrant& grant) const noexcept;
  Result<void> prepare(Segment& segment, bool is_writable) noexcept;
  bool is_valid(const Instance& instance) const noexcept;
  bool are_members_known(uint32_t group) const noexcept;
  Segment& members_segment(const JoinGroup& group) const noexcept;
  void set_members(const Instance& instance, MemberState state) noexcept;
  Segment* heap_of(const Instance& instance) const noexcept;
  Release renew(Instance& instance) noexcept;
  static Release without_pages(Instance& instance, const Segment& segment) noexcept;
  // Calls visit(segment, is_writable, role) for each segment that its process gets. Returns the
  // rights to all of them.
  template <typename Visit>
  SegmentRights visit_segments(const Instance& instance, Visit visit) const noexcept;

  Options options_;
  std::vector<Instance> instances_;
  std::vector<uint32_t> first_instance_;      // of each grant
  std::vector<uint32_t> own_member_counts_;   // of each group: the owner's members
  std::vector<std::vector<Segment*>> heaps_;  // of each group: all heaps of its processes
  Fd read_only_[kSegmentCountMax];            // of each segment, if opened
  PageWiper wiper_;
};

}  // namespace bedplate
