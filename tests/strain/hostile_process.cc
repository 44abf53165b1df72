// The scribbler as a separate process, in parallel with others that must not be affected.
#include <cinttypes>
#include <thread>

#include <signal.h>

#include "platform/clock.h"
#include "platform/log.h"
#include "tests/strain/hostile.h"
#include "tests/strain/scribbler.h"
#include "tests/strain/strained_group.h"
#include "tests/strain/victim.h"
#include "tests/support/patience.h"

namespace bedplate::strain {
namespace {

constexpr uint64_t kLifeNs = 60 * kNsPerMs;  // of each scribbler
using test::kPatienceNs;

// Verified traffic in a group that the scribbler has not joined.
class Bystanders {
 public:
  Bystanders(GroupKind kind, uint32_t process_count, uint64_t seed)
      : group_(strained_shape(kind, process_count), seed) {
    group_.start_own_traffic();
    for (uint32_t i = 1; i < process_count; ++i) peers_.push_back(group_.start_peer());
    for (const pid_t pid : peers_) group_.wait_until_alive(pid);
  }
  // Returns how many messages they have exchanged, all verified.
  uint64_t end() {
    group_.settle();
    uint64_t received = 0;
    for (const BoardRow& row : group_.board().rows) received += row.received.load();
    group_.end(peers_);
    group_.end_own_traffic();
    return received;
  }

 private:
  StrainedGroup group_;
  std::vector<pid_t> peers_;
};

// The owner's own member in the group that is scribbled over.
class VictimThread {
 public:
  VictimThread(const StrainedGroup& group, uint64_t seed)
      : victim_(group.own_options(), group.own_heap(), seed), thread_([this] { run(); }) {}
  void end() {
    is_over_ = true;
    thread_.join();
    victim_.check_private();
  }
  uint64_t steps() const noexcept { return steps_.load(std::memory_order_relaxed); }
  const ShmCounters& counters() const noexcept { return victim_.counters(); }

 private:
  void run() {
    while (!is_over_) {
      victim_.step();
      steps_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  Victim victim_;
  std::atomic<bool> is_over_{false};
  std::atomic<uint64_t> steps_{0};
  std::thread thread_;
};

}  // namespace

int be_scribbler(const char* socket_path, uint64_t seed) {
  set_log_level(LogLevel::kError);
  JoinedGroup group = join_group(socket_path);
  static Victim self(group.shm, group.pool.own_heap()->memory(), seed);
  if (!group.pool.ready().ok()) fail("not ready");
  Scribbler scribbler(group.shm.segment, group.pool.own_heap()->memory(), true, seed);
  std::mt19937_64 random(seed);
  while (!group.pool.is_owner_gone()) {
    // Some honest traffic first: otherwise the victim would only see a peer that is cut off at
    // once.
    for (uint64_t i = random() % 256; i > 0; --i) self.step();
    for (uint64_t i = 1 + random() % 16; i > 0; --i) scribbler.scribble();
    group.board->mutations.store(scribbler.count(), std::memory_order_relaxed);
  }
  return 0;
}

void scribble_beside_others(GroupKind kind, uint64_t nanoseconds, uint64_t seed) {
  set_log_level(LogLevel::kError);
  Bystanders group(GroupKind::kLazy, 3, seed + 1);
  Bystanders exchange(GroupKind::kExchange, 2, seed + 2);
  // Spare slots: the data that a scribbler leaves may prevent the reuse of its own slot.
  const uint32_t member_count = kind == GroupKind::kExchange ? 2 : 8;
  StrainedGroup scribbled(strained_shape(kind, member_count), seed);
  VictimThread victim(scribbled, seed);
  std::atomic<uint64_t>& mutations = scribbled.board().mutations;

  uint64_t mutation_count = 0, longest_ns = 0;
  uint32_t lives = 0;
  for (const uint64_t end = monotonic_ns() + nanoseconds; monotonic_ns() < end;) {
    if (scribbled.taken_count() == member_count) break;
    const pid_t pid = scribbled.start_peer("scribbler");
    scribbled.wait_until_alive(pid);
    mutations.store(0);
    ++lives;
    for (const uint64_t until = monotonic_ns() + kLifeNs; monotonic_ns() < until;) {
      const uint64_t steps = victim.steps();
      const uint64_t took = time_until([&] { return victim.steps() != steps; }, kPatienceNs);
      if (took == UINT64_MAX) fail("the victim hangs");
      longest_ns = std::max(longest_ns, took);
    }
    mutation_count += mutations.load();
    ::kill(pid, SIGKILL);
    if (const int status = StrainedGroup::status_of(pid); status != -SIGKILL) {
      fail("the scribbler itself ended with %d", status);
    }
    // The scribbler's slot becomes free, unless the scribbler's writes prevent it.
    time_until([&] { return scribbled.taken_count() == 1; }, kNsPerSecond / 2);
  }
  victim.end();
  const uint64_t verified[] = {group.end(), exchange.end()};
  std::printf("hostile: %s, %u processes scribbled %" PRIu64 " times: %" PRIu64 " cut off, the "
              "victim took %" PRIu64 " messages and at most %" PRIu64
              " ms for a round; beside it %" PRIu64 " verified in a group, %" PRIu64
              " in an exchange\n",
              to_text(kind), lives, mutation_count, victim.counters().cut_off.read(),
              victim.counters().received.read(), longest_ns / kNsPerMs, verified[0], verified[1]);
}

}  // namespace bedplate::strain
