#include "tests/strain/sleepers.h"

#include <algorithm>
#include <cinttypes>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "tests/strain/asleep.h"
#include "tests/strain/strained_group.h"
#include "tests/support/patience.h"

namespace bedplate::strain {
namespace {

constexpr uint32_t kSleeperMax = 5;
using test::kPatienceNs;

// Written by the owner for its parent: the time of the kill, and the sleepers.
struct Legacy {
  std::atomic<uint64_t> killed_ns;
  std::atomic<pid_t> sleepers[kSleeperMax];
};

bool is_asleep(pid_t pid) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  return is_asleep_in_kernel(path);
}

// Starts the sleepers, and dies when all sleep.
[[noreturn]] void be_owner_until_all_sleep(GroupKind kind, uint64_t seed, Legacy& legacy) {
  const uint32_t count = kind == GroupKind::kExchange ? 1 : kSleeperMax;
  StrainedGroup group(strained_shape(kind, count + 1), seed);
  for (uint32_t i = 0; i < count; ++i) legacy.sleepers[i] = group.start_peer("sleeper");
  for (uint32_t i = 0; i < count; ++i) group.wait_until_alive(legacy.sleepers[i]);
  const auto do_all_sleep = [&] {
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t member = group.member_of(legacy.sleepers[i]);
      if (group.segment().bell(member).word().load() == 0) return false;
      if (!is_asleep(legacy.sleepers[i])) return false;
    }
    return true;
  };
  // All must sleep twice, with a pause in between: a member wakes when another member joins after
  // it.
  for (uint32_t times = 0; times < 2; ++times) {
    if (time_until(do_all_sleep, kPatienceNs) == UINT64_MAX) fail("not all of them fall asleep");
    const timespec pause = {0, 20'000'000};
    nanosleep(&pause, nullptr);
    if (!do_all_sleep()) times = 0;
  }
  legacy.killed_ns = monotonic_ns();
  ::kill(getpid(), SIGKILL);
  _exit(1);
}

// Waits until all sleepers have ended. Returns the longest time from the owner's death to a
// sleeper's end.
uint64_t wait_for_sleepers(const Legacy& legacy) {
  uint64_t longest_ns = 0;
  for (const std::atomic<pid_t>& sleeper : legacy.sleepers) {
    const pid_t pid = sleeper.load();
    if (pid == 0) continue;
    int status = 0;
    const auto has_ended = [&] { return waitpid(pid, &status, WNOHANG) == pid; };
    if (time_until(has_ended, kPatienceNs) == UINT64_MAX) {
      for (const std::atomic<pid_t>& other : legacy.sleepers) {
        if (other.load() != 0) ::kill(other.load(), SIGKILL);
      }
      fail("process %d sleeps on after its owner's death", pid);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fail("a sleeper ended with %x", static_cast<unsigned>(status));
    }
    longest_ns = std::max(longest_ns, monotonic_ns() - legacy.killed_ns.load());
  }
  return longest_ns;
}

}  // namespace

int be_sleeper(const char* socket_path, uint64_t) {
  JoinedGroup group = join_group(socket_path);
  static Messenger messenger;
  static ShmProvider shm;
  static bool is_pool_gone = false;
  group.shm.on_peer = {[](void*, const PeerEvent& event) noexcept {
                         if (event.kind == PeerEventKind::kPoolGone) is_pool_gone = true;
                       },
                       nullptr};
  if (auto created = shm.create(group.shm, messenger.dispatcher()); !created.ok()) {
    fail("%s: %s", created.error().doing, created.error().answer);
  }
  messenger.add_provider(shm);
  if (!group.pool.ready().ok()) fail("not ready");
  while (!is_pool_gone) {
    if (messenger.poll(64) == 0 && !is_pool_gone) messenger.wait(UINT64_MAX);
  }
  return 0;
}

void kill_owner_of_sleepers(GroupKind kind, uint32_t rounds, uint64_t seed) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans become children of this process
  void* memory =
      mmap(nullptr, sizeof(Legacy), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory to share");
  uint64_t longest_ns = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    auto& legacy = *new (memory) Legacy{};
    const pid_t owner = fork();
    if (owner == 0) be_owner_until_all_sleep(kind, seed + round, legacy);
    if (StrainedGroup::status_of(owner) != -SIGKILL) fail("the owner did not come to its death");
    StrainedGroup::remove_sockets_of(owner);
    longest_ns = std::max(longest_ns, wait_for_sleepers(legacy));
  }
  munmap(memory, sizeof(Legacy));
  std::printf("sleepers: %s: %u times the owner was killed, all heard it and ended within %" PRIu64
              " ms\n",
              to_text(kind), rounds, longest_ns / kNsPerMs);
}

}  // namespace bedplate::strain
