// Stress tests of messages. Several programs in one; each ends with the line that scripts/check.sh
// counts:
//
//   message_strain stress SECONDS [PROCESSES]  2 to 16 processes send each other verified messages;
//                                              none is lost, duplicated, reordered or corrupted
//   message_strain kill ROUNDS                 processes are killed at any instruction while others
//                                              continue; then the owner is killed
//   message_strain step SECONDS [TEXT] [MS]    a sender is stopped at each instruction of a send;
//                                              then it continues, dies, or is declared dead. TEXT
//                                              selects cases; MS: the limit for a hang (20000)
//   message_strain stop EVENTS                 members are stopped, others are killed and join
//   message_strain sleepers ROUNDS             the owner is killed while all others sleep
//   message_strain door SECONDS                strangers flood the join socket, and a member seals
//                                              and punches its files, while others die, join and
//                                              send
//   message_strain hostile SECONDS             members overwrite all memory that they may write,
//                                              while others use it, and others work in parallel
//   message_strain mutations COUNT             the same in one process, faster
//   message_strain episode KIND SEED           repeats one episode of `mutations`
//
// BEDPLATE_TEST_SEED=N repeats the choices of a run, but not the scheduling of the processes.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/strain/door.h"
#include "tests/strain/hostile.h"
#include "tests/strain/kill.h"
#include "tests/strain/sleepers.h"
#include "tests/strain/step.h"
#include "tests/strain/stepper.h"
#include "tests/strain/stop.h"
#include "tests/strain/strained_group.h"
#include "tests/strain/stress.h"
#include "tests/support/seed.h"

using namespace bedplate;
using namespace bedplate::strain;

namespace {

int passed = 0;
int failed = 0;

// Kills the processes that a failed part has left. They are children of this process now, and some
// may be stopped.
void end_orphans() {
  std::ifstream children("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (pid_t child = 0; children >> child;) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

// Runs `body` in a process of its own: each process creates its pool only once.
template <typename Body>
void run_part(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    std::fflush(nullptr);
    _exit(0);
  }
  if (StrainedGroup::status_of(child) == 0) {
    ++passed;
    return;
  }
  ++failed;
  end_orphans();
  StrainedGroup::remove_sockets_of(child);
}

int conclude(const test::Seed& seed) {
  if (failed > 0) std::printf("%s\n", seed.text());
  std::printf("%d passed, %d failed, 0 skipped\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

int run_stress(uint64_t seconds, uint32_t process_count) {
  const test::Seed seed;
  const uint32_t counts[] = {2, 3, 8, 16};
  const uint64_t parts = process_count == 0 ? 2 * std::size(counts) + 1 : 3;
  run_part(
      [&] { stress_group(GroupKind::kExchange, 2, seconds * kNsPerSecond / parts, seed.value()); });
  for (const GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    for (const uint32_t count : counts) {
      if (process_count != 0 && count != counts[0]) continue;
      run_part([&] {
        stress_group(kind, process_count != 0 ? process_count : count,
                     seconds * kNsPerSecond / parts, seed.value());
      });
    }
  }
  return conclude(seed);
}

int run_kill(uint32_t rounds) {
  const test::Seed seed;
  run_part([&] { kill_members(GroupKind::kLazy, true, rounds / 3, seed.value()); });
  run_part([&] { kill_members(GroupKind::kLazy, false, rounds / 3, seed.value()); });
  run_part([&] { kill_members(GroupKind::kMesh, false, rounds - rounds / 3 * 2, seed.value()); });
  for (const GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    for (uint64_t i = 0; i < 5; ++i) run_part([&] { kill_owner(kind, seed.value() + i * 7919); });
  }
  return conclude(seed);
}

int run_step(uint64_t seconds, const char* filter, uint64_t hang_ms) {
  const test::Seed seed;
  StepOptions options;
  options.nanoseconds = seconds * kNsPerSecond;
  options.hang_ns = (hang_ms != 0 ? hang_ms : 20'000) * kNsPerMs;
  options.seed = seed.value();
  options.filter = filter;
  uint32_t count = 0;
  failed = static_cast<int>(step_senders(options, &count));
  passed = static_cast<int>(count) - failed;
  return conclude(seed);
}

int run_stop(uint32_t events) {
  const test::Seed seed;
  for (const GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh}) {
    run_part([&] { stop_members(kind, events / 2, seed.value()); });
  }
  return conclude(seed);
}

int run_sleepers(uint32_t rounds) {
  const test::Seed seed;
  for (const GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
    run_part([&] { kill_owner_of_sleepers(kind, rounds, seed.value()); });
  }
  return conclude(seed);
}

int run_door(uint64_t seconds) {
  const test::Seed seed;
  run_part([&] { strain_door(seconds * kNsPerSecond, seed.value()); });
  return conclude(seed);
}

// Runs episodes for `nanoseconds`, or until they have made `count` mutations.
void run_episodes(uint64_t nanoseconds, uint64_t count, const test::Seed& seed) {
  share_episode();
  run_part([&] { scribble_in_process(nanoseconds, count, seed.value()); });
  if (failed > 0) say_episode();
}

int run_mutations(uint64_t count) {
  const test::Seed seed;
  run_episodes(UINT64_MAX, count, seed);
  return conclude(seed);
}

int run_hostile(uint64_t seconds) {
  const test::Seed seed;
  const uint64_t part_ns = seconds * kNsPerSecond / 4;
  run_episodes(part_ns, UINT64_MAX, seed);
  for (const GroupKind kind : {GroupKind::kLazy, GroupKind::kMesh, GroupKind::kExchange}) {
    run_part([&] { scribble_beside_others(kind, part_ns, seed.value()); });
  }
  return conclude(seed);
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 256);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const char* what = count >= 3 ? arguments[1] : "";
  const auto figure = [&](int index) {
    return index < count ? std::strtoull(arguments[index], nullptr, 10) : 0;
  };
  if (std::strcmp(what, "peer") == 0 && count == 4) return be_peer(arguments[2], figure(3));
  if (std::strcmp(what, "stepper") == 0 && count == 4) return be_stepper(arguments[2], figure(3));
  if (std::strcmp(what, "flooder") == 0 && count == 4) return be_flooder(arguments[2], figure(3));
  if (std::strcmp(what, "sealer") == 0 && count == 4) return be_sealer(arguments[2], figure(3));
  if (std::strcmp(what, "sleeper") == 0 && count == 4) return be_sleeper(arguments[2], figure(3));
  if (std::strcmp(what, "scribbler") == 0 && count == 4) {
    return be_scribbler(arguments[2], figure(3));
  }
  if (std::strcmp(what, "episode") == 0 && count == 4) {
    scribble_once(static_cast<GroupKind>(figure(2)), figure(3));
    return 0;
  }
  if (std::strcmp(what, "step") == 0) {
    return run_step(figure(2), count >= 4 ? arguments[3] : "", figure(4));
  }
  if (std::strcmp(what, "stop") == 0) return run_stop(static_cast<uint32_t>(figure(2)));
  if (std::strcmp(what, "sleepers") == 0) return run_sleepers(static_cast<uint32_t>(figure(2)));
  if (std::strcmp(what, "door") == 0) return run_door(figure(2));
  if (std::strcmp(what, "hostile") == 0) return run_hostile(figure(2));
  if (std::strcmp(what, "mutations") == 0) return run_mutations(figure(2));
  if (std::strcmp(what, "stress") == 0) {
    return run_stress(figure(2), static_cast<uint32_t>(figure(3)));
  }
  if (std::strcmp(what, "kill") == 0) return run_kill(static_cast<uint32_t>(figure(2)));
  std::fprintf(stderr, "usage: message_strain stress SECONDS [PROCESSES] | kill ROUNDS |\n"
                       "       step SECONDS [TEXT] [MS] | stop EVENTS | sleepers ROUNDS |\n"
                       "       door SECONDS | hostile SECONDS | mutations COUNT |\n"
                       "       episode KIND SEED\n");
  return 2;
}
