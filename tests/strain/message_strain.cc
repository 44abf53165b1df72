// Messages under strain. Several programs in one, each ending with the line that scripts/check.sh
// counts:
//
//   message_strain stress SECONDS [PROCESSES]  2 to 16 processes send to one another what proves
//                                              itself; nothing is lost, doubled, reordered, spoilt
//   message_strain kill ROUNDS                 processes are killed at any instruction while others
//                                              go on; then the owner is
//
// BEDPLATE_TEST_SEED=N repeats the choices of a run; the order of what processes do is theirs.
#include <cstdlib>
#include <cstring>

#include <sys/wait.h>

#include "tests/strain/kill.h"
#include "tests/strain/strained_group.h"
#include "tests/strain/stress.h"
#include "tests/support/seed.h"

using namespace bedplate;
using namespace bedplate::strain;

namespace {

int passed = 0;
int failed = 0;

// Runs `body` in a process of its own: a pool is made once in a life.
template <typename Body>
void run_part(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    body();
    std::fflush(nullptr);
    _exit(0);
  }
  StrainedGroup::status_of(child) == 0 ? ++passed : ++failed;
}

int conclude(const test::Seed& seed) {
  if (failed > 0) std::printf("%s\n", seed.text());
  std::printf("%d passed, %d failed, 0 skipped\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

int run_stress(uint64_t seconds, uint32_t process_count) {
  const test::Seed seed;
  const uint32_t counts[] = {2, 3, 8, 16};
  const uint64_t parts = process_count == 0 ? 2 * std::size(counts) : 2;
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

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 256);
  const char* what = count >= 3 ? arguments[1] : "";
  const auto figure = [&](int index) {
    return index < count ? std::strtoull(arguments[index], nullptr, 10) : 0;
  };
  if (std::strcmp(what, "peer") == 0 && count == 4) return be_peer(arguments[2], figure(3));
  if (std::strcmp(what, "stress") == 0) {
    return run_stress(figure(2), static_cast<uint32_t>(figure(3)));
  }
  if (std::strcmp(what, "kill") == 0) return run_kill(static_cast<uint32_t>(figure(2)));
  std::fprintf(stderr, "usage: message_strain stress SECONDS [PROCESSES] | kill ROUNDS\n");
  return 2;
}
