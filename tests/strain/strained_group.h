// A group under stress: its pool, its owner, and the joining processes, each a new instance of this
// program.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include "pinned_pool/join/join_server.h"
#include "pinned_pool/join/joined_pool.h"
#include "tests/strain/participant.h"
#include "transport/shm/membership/group_keeper.h"

namespace bedplate::strain {

// The owner's side. One process may own three groups; their segments are never given back.
class StrainedGroup {
 public:
  // `shape.member_count` includes the owner, which is member 0 and takes part in the traffic. The
  // first `own_count` members are the owner's. `spare_count` of the others are spare slots.
  StrainedGroup(const GroupShape& shape, uint64_t seed, uint32_t own_count = 1,
                uint32_t spare_count = 0);
  ~StrainedGroup();

  // Seals the pool, as an appliance does before any process joins. No group can be created later.
  static void seal_pool();

  // Starts the traffic of the owner itself.
  void start_own_traffic();
  void end_own_traffic();

  // Starts a process that joins, in a role that message_strain.cc knows. Returns at once.
  pid_t start_peer(const char* role = "peer");
  // The process's member index, once the member is alive; 0: it is not alive (yet).
  uint32_t member_of(pid_t pid) const noexcept;
  uint32_t wait_until_alive(pid_t pid);
  // Waits for the end of the process. Returns its exit code, or the negated signal.
  static int status_of(pid_t pid);
  // Removes the sockets in /tmp of an owner that was killed or has failed.
  static void remove_sockets_of(pid_t owner);
  // Stops all senders, and waits until all messages are received and all loans returned.
  void settle();
  // Ends all peers. Fails if a peer's exit code is not 0.
  void end(const std::vector<pid_t>& peers);

  // The options for one of the owner's members.
  ShmProviderOptions own_options(uint32_t member = 0) const noexcept;
  std::span<std::byte> own_heap() const noexcept { return heap_->memory(); }

  // The number of members that are not free.
  uint32_t taken_count() const noexcept;
  Board& board() noexcept { return *board_; }
  const MembersTable& members() const noexcept { return *members_; }
  const GroupSegment& segment() const noexcept { return segment_; }

 private:
  Segment& create(const char* owner, uint64_t bytes);

  GroupShape shape_;
  uint64_t seed_;
  uint64_t started_ = 0;
  PoolId pool_id_;
  std::string socket_path_;
  Segment* heap_ = nullptr;
  MembersTable* members_ = nullptr;
  Board* board_ = nullptr;
  GroupSegment segment_;
  std::unique_ptr<ShmGroupKeeper> keeper_;
  std::unique_ptr<JoinServer> server_;
  std::unique_ptr<Participant> own_;
  std::thread traffic_;
};

// The joiner's side, in a process started by start_peer(). Fails if it cannot join.
struct JoinedGroup {
  JoinedPool pool;
  ShmProviderOptions shm;
  Board* board = nullptr;
};
JoinedGroup join_group(const char* socket_path);

// Runs a peer from join to exit.
int be_peer(const char* socket_path, uint64_t seed);

// The shape of the tests' groups: so small that queues run full and boxes must change owners.
GroupShape strained_shape(GroupKind kind, uint32_t member_count);

// Waits until `condition` holds. Returns the nanoseconds taken, or UINT64_MAX if `condition` did
// not hold within `within_ns`.
template <typename Condition>
uint64_t time_until(Condition&& condition, uint64_t within_ns) {
  const uint64_t begin = monotonic_ns();
  while (!condition()) {
    if (monotonic_ns() - begin > within_ns) return UINT64_MAX;
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
  }
  return monotonic_ns() - begin;
}

}  // namespace bedplate::strain
