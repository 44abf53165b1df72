#include "tests/strain/kill.h"

#include <algorithm>
#include <cinttypes>
#include <filesystem>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "platform/clock.h"
#include "tests/strain/strained_group.h"
#include "tests/support/patience.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kProcessCount = 5;  // including the owner
using test::kPatienceNs;

// The longest wait of each kind.
struct Longest {
  uint64_t progress_ns = 0;  // until a survivor had received something after a death
  uint64_t free_ns = 0;      // until the dead member's slot was free

  static void note(uint64_t* longest, uint64_t took, const char* what) {
    if (took == UINT64_MAX) fail("%s takes longer than 10 s", what);
    *longest = std::max(*longest, took);
  }
};

void pause_ns(uint64_t nanoseconds) {
  // nanosleep() takes some 50 us longer: the last 100 us, and short pauses, are busy waits.
  const uint64_t until = monotonic_ns() + nanoseconds;
  if (nanoseconds > 200 * kNsPerUs) {
    const timespec duration = {0, static_cast<long>(nanoseconds - 100 * kNsPerUs)};
    nanosleep(&duration, nullptr);
  }
  while (monotonic_ns() < until) cpu_relax();
}

size_t open_file_count() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

class KillRounds {
 public:
  KillRounds(const GroupShape& shape, uint64_t seed) : group_(shape, seed), random_(seed) {}

  void run(uint32_t rounds);
  void report(uint32_t rounds) const;

 private:
  uint64_t below(uint64_t bound) { return random_() % bound; }
  void start_all();
  void kill_at_work();
  void kill_leaving();
  void kill_joining();
  void kill_and_check(pid_t pid, uint32_t member);
  void check_progress(const uint64_t (&received)[kMemberMax], uint32_t member);
  void check_parts(uint32_t member);

  StrainedGroup group_;
  std::mt19937_64 random_;
  std::vector<pid_t> peers_;
  size_t open_files_ = SIZE_MAX;  // the smallest number after a round
  Longest longest_;
  uint64_t join_ns_ = 0;  // duration of the last start
  uint64_t abandoned_ = 0;
  uint64_t joined_first_ = 0;  // had joined before a kill that aimed at the join
  uint64_t left_first_ = 0;
};

void KillRounds::start_all() {
  const uint64_t begin = monotonic_ns();
  while (peers_.size() + 1 < kProcessCount) peers_.push_back(group_.start_peer());
  for (const pid_t pid : peers_) group_.wait_until_alive(pid);
  join_ns_ = monotonic_ns() - begin;
}

void KillRounds::kill_at_work() {
  const size_t victim = below(peers_.size());
  const pid_t pid = peers_[victim];
  peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(victim));
  const uint32_t member = group_.wait_until_alive(pid);
  // Half of the victims send only short messages. A kill then often hits the few instructions
  // between claiming and publishing a slot.
  group_.board().rows[member].must_hurry.store(below(2) != 0, std::memory_order_release);
  // The kill comes early or in the middle of the traffic.
  pause_ns(below(below(2) == 0 ? 100 * kNsPerUs : 5 * kNsPerMs));
  kill_and_check(pid, member);
}

void KillRounds::kill_leaving() {
  const size_t victim = below(peers_.size());
  const pid_t pid = peers_[victim];
  peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(victim));
  const uint32_t member = group_.wait_until_alive(pid);
  group_.board().rows[member].must_leave.store(1, std::memory_order_release);
  pause_ns(below(2 * kNsPerMs));
  kill_and_check(pid, member);
}

void KillRounds::kill_joining() {
  const size_t victim = below(peers_.size());
  const pid_t first = peers_[victim];
  peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(victim));
  kill_and_check(first, group_.wait_until_alive(first));
  const pid_t pid = group_.start_peer();
  pause_ns(below(join_ns_ + join_ns_ / 4 + 1));
  const uint32_t member = group_.member_of(pid);
  if (member != 0) ++joined_first_;
  kill_and_check(pid, member);
}

// `member` 0: the process may have joined in the meantime, or not.
void KillRounds::kill_and_check(pid_t pid, uint32_t member) {
  uint64_t received[kMemberMax];
  for (uint32_t i = 0; i < kProcessCount; ++i) {
    received[i] = group_.board().rows[i].received.load(std::memory_order_relaxed);
  }
  ::kill(pid, SIGKILL);
  const int status = StrainedGroup::status_of(pid);
  if (status == 0) ++left_first_;
  else if (status != -SIGKILL) fail("process %d ended with %d before it was killed", pid, status);
  check_progress(received, member);
  const uint32_t others = static_cast<uint32_t>(peers_.size()) + 1;
  Longest::note(&longest_.free_ns,
                time_until([&] { return group_.taken_count() == others; }, kPatienceNs),
                "freeing a dead member's place");
  if (member != 0) check_parts(member);
}

// Checks that each survivor receives a message. At least two members survive each kill.
void KillRounds::check_progress(const uint64_t (&received)[kMemberMax], uint32_t member) {
  const uint64_t killed_ns = monotonic_ns();
  for (uint32_t i = 0; i < kProcessCount; ++i) {
    const BoardRow& row = group_.board().rows[i];
    if (i == member || group_.members().state(i) != MemberState::kAlive) continue;
    const auto moved = [&] {
      return row.received.load(std::memory_order_relaxed) != received[i] ||
             group_.members().state(i) != MemberState::kAlive;
    };
    if (time_until(moved, kPatienceNs) == UINT64_MAX) {
      fail("member %u has received nothing since member %u was killed; it went round its loop "
           "%" PRIu64 " times in all",
           i, member, row.steps.load());
    }
    longest_.progress_ns = std::max(longest_.progress_ns, monotonic_ns() - killed_ns);
  }
}

// Checks that the dead member's boxes and part are free, and that others have its loans back.
void KillRounds::check_parts(uint32_t member) {
  const GroupSegment& segment = group_.segment();
  if (segment.shape().kind == GroupKind::kLazy) {
    for (uint32_t i = 0; i < segment.shape().box_count; ++i) {
      const uint64_t owner = segment.box_owner(i).load(std::memory_order_acquire);
      if (owner >> 32 == member + 1 || (owner & UINT32_MAX) == member + 1) {
        fail("box %u is still member %u's, who is dead", i, member);
      }
    }
  }
  for (uint32_t i = 0; i < kProcessCount; ++i) {
    if (group_.members().state(i) != MemberState::kAlive) continue;
    if (group_.board().rows[i].lent[member].load(std::memory_order_acquire) != 0) {
      fail("member %u never got its loans back from member %u, who is dead", i, member);
    }
  }
  const std::span<const std::byte> part =
      segment.memory().subspan(segment.layout().member(member), segment.layout().member_bytes());
  // Skips the bell's word, which comes first: any member that rings may write it.
  const auto first = part.begin() + kCacheLineBytes;
  if (std::any_of(first, part.end(), [](std::byte byte) { return byte != std::byte{0}; })) {
    fail("the part of member %u was written after it was made as new", member);
  }
}

void KillRounds::run(uint32_t rounds) {
  group_.start_own_traffic();
  for (uint32_t round = 0; round < rounds; ++round) {
    start_all();
    const uint64_t kind = below(10);
    kind < 6 ? kill_at_work() : kind < 8 ? kill_leaving() : kill_joining();
    // The number of peers is the same after each round. A separate thread closes the files that
    // dead peers leave, so the count may fall a little later.
    open_files_ = std::min(open_files_, open_file_count());
    if (!test::eventually([this] { return open_file_count() <= open_files_; })) {
      fail("%zu files are open after %u rounds, %zu were before", open_file_count(), round + 1,
           open_files_);
    }
  }
  start_all();
  group_.settle();
  for (uint32_t i = 0; i < kProcessCount; ++i) {
    const BoardRow& row = group_.board().rows[i];
    abandoned_ += row.abandoned.load();
    if (row.loans_out.load() != 0) fail("member %u has loans out at the end", i);
  }
  group_.end(peers_);
  group_.end_own_traffic();
}

void KillRounds::report(uint32_t rounds) const {
  const GroupShape& shape = group_.segment().shape();
  std::printf("kill: %s with %u boxes, %u rounds: survivors received again within %" PRIu64
              " us, places were free within %" PRIu64 " ms; %" PRIu64
              " were through joining, %" PRIu64 " through leaving; %" PRIu64
              " abandoned slots with those who saw the end\n",
              to_text(shape.kind), shape.kind == GroupKind::kLazy ? shape.box_count : 0, rounds,
              longest_.progress_ns / kNsPerUs, longest_.free_ns / kNsPerMs, joined_first_,
              left_first_, abandoned_);
}

}  // namespace

void kill_members(GroupKind kind, bool has_boxes, uint32_t rounds, uint64_t seed) {
  GroupShape shape = strained_shape(kind, kProcessCount);
  if (!has_boxes) {
    shape.box_count = 0;
    if (kind == GroupKind::kLazy) shape.entry_count = 1024;
  }
  KillRounds all(shape, seed);
  all.run(rounds);
  all.report(rounds);
}

void kill_owner(GroupKind kind, uint64_t seed) {
  // Orphans become children of this process, so that it can read their exit codes.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t owner = fork();
  if (owner == 0) {
    StrainedGroup group(strained_shape(kind, kProcessCount), seed);
    group.start_own_traffic();
    std::vector<pid_t> peers;
    for (uint32_t i = 1; i < kProcessCount; ++i) peers.push_back(group.start_peer());
    for (const pid_t pid : peers) group.wait_until_alive(pid);
    pause_ns(20 * kNsPerMs + seed % (20 * kNsPerMs));
    ::kill(getpid(), SIGKILL);
  }
  if (StrainedGroup::status_of(owner) != -SIGKILL) fail("the owner did not come to its death");
  StrainedGroup::remove_sockets_of(owner);
  const uint64_t begin = monotonic_ns();
  uint32_t count = 0;
  for (int status = 0; wait(&status) > 0; ++count) {
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fail("a member did not survive its owner: status %x", static_cast<unsigned>(status));
    }
  }
  if (count != kProcessCount - 1) fail("%u members outlived the owner", count);
  std::printf("kill: %s, the owner: %u members received what was left and ended, within %" PRIu64
              " ms\n",
              to_text(kind), count, (monotonic_ns() - begin) / kNsPerMs);
}

}  // namespace bedplate::strain
