// Deaths of processes: at every step of joining, many times in a row, a thousand at once, and the
// death of the owner.
#include <cinttypes>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>

#include "tests/pinned_pool/join/join_rig.h"
#include "tests/support/skip.h"

using namespace bedplate;
using bedplate::test::Child;
using bedplate::test::JoinRig;
using Kind = JoinEvent::Kind;

namespace {

// The test program's resident memory, without shared files.
uint64_t private_bytes() {
  uint64_t pages = 0, resident = 0, shared = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  CHECK(std::fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64, &pages, &resident, &shared) == 3);
  std::fclose(file);
  return (resident - shared) * 4096;
}

// A joiner's at_step: kills the joiner after `steps_left` more steps.
int steps_left = 0;
void die_in_time(JoinStep) {
  if (steps_left-- == 0) raise(SIGKILL);
}

}  // namespace

TEST_GROUP(JoinDeath) {
  JoinRig rig;
  size_t joined_count = 0;

  Child join_one() {
    Child child = rig.start_joiner();
    ++joined_count;
    LONGS_EQUAL(joined_count, rig.wait_for(Kind::kJoined, joined_count));
    return child;
  }
};

// BEDPLATE_TEST_FIGURES=1 prints how soon the table shows the death.
TEST(JoinDeath, IsSeenInTheTable) {
  rig.keeper.forgets = false;
  rig.start();
  Child child = join_one();
  const uint32_t wakes = rig.keeper.wakes;
  const uint64_t start = monotonic_ns();
  child.kill_now();
  CHECK(JoinRig::becomes([&] { return rig.table->state(1) >= MemberState::kDead; }));
  const uint64_t seen_ns = monotonic_ns() - start;
  if (std::getenv("BEDPLATE_TEST_FIGURES") != nullptr) {
    std::printf("dead in the table after %" PRIu64 " us\n", seen_ns / 1000);
  }
  rig.keeper.forgets = true;
  CHECK(JoinRig::becomes([&] { return rig.keeper.wakes > wakes; }));
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
  STRCMP_EQUAL("relay", rig.last(Kind::kDied).process.text);
  CHECK(rig.last(Kind::kDied).error.answer[0] != '\0');
}

TEST(JoinDeath, PartIsGivenOutAgainOnceForgottenAndWiped) {
  rig.keeper.forgets = false;
  rig.start();
  Child child = join_one();
  rig.heaps[0]->address[4 * kMiB - 1] = std::byte{0x5a};
  child.kill_and_wait();
  LONGS_EQUAL(1, rig.wait_for(Kind::kQuiet));
  CHECK((rig.table->word(1) == MemberWord{1, MemberState::kQuiet}));
  LONGS_EQUAL(0, rig.keeper.resets.load());
  rig.keeper.forgets = true;
  LONGS_EQUAL(1, rig.wait_for(Kind::kFreed));
  CHECK((rig.table->word(1) == MemberWord{1, MemberState::kFree}));
  LONGS_EQUAL(1, rig.keeper.resets.load());
  CHECK(rig.heaps[0]->address[4 * kMiB - 1] == std::byte{0});
  Child next = join_one();
  CHECK((rig.table->word(1) == MemberWord{2, MemberState::kAlive}));
}

TEST(JoinDeath, IsNotQuietWhileAForkedChildLives) {
  rig.start();
  int ends[2];
  CHECK(pipe(ends) == 0);
  Child child = rig.fork_joiner([&](JoinOptions& options) {
    (void)JoinedPool::join(options).take().ready();
    if (fork() == 0) {
      char ignored;
      ::close(ends[1]);
      [[maybe_unused]] const ssize_t got = read(ends[0], &ignored, 1);
      _exit(0);
    }
    raise(SIGKILL);
  });
  ::close(ends[0]);
  LONGS_EQUAL(-SIGKILL, child.status());
  // The joiner's child holds the connection open; the pidfd reports the death.
  LONGS_EQUAL(1, rig.wait_for(Kind::kDied));
  CHECK(rig.table->state(1) == MemberState::kDead);
  // The dead process itself writes no more.
  CHECK(JoinRig::becomes([&] { return rig.keeper.stops.load() == 1; }));
  ::close(ends[1]);
  LONGS_EQUAL(1, rig.wait_for(Kind::kQuiet));
}

TEST(JoinDeath, AtEveryStepLeavesNothingBehind) {
  rig.start();
  constexpr int kSteps = 3 + 5 + 1;  // five segments are mapped
  size_t freed = 0;
  for (int step = 0; step <= kSteps; ++step) {
    steps_left = step;
    Child child = rig.fork_joiner([](JoinOptions& options) {
      options.at_step = die_in_time;
      auto joined = JoinedPool::join(options);
      BP_PROBE_CHECK(joined.ok());
      raise(SIGKILL);  // before it was ready
    });
    LONGS_EQUAL(-SIGKILL, child.status());
    if (step >= 2) ++freed;  // the owner had answered the child's request
    if (step == 1) {         // the owner may or may not have served the request before the death
      CHECK(JoinRig::becomes([&] { return rig.table->state(1) == MemberState::kFree; }));
      freed = rig.wait_for(Kind::kFreed, 0);
    }
    CHECK(rig.wait_for(Kind::kFreed, freed) >= freed);
  }
  CHECK(JoinRig::becomes([&] { return rig.table->state(1) == MemberState::kFree; }));
  Child first = join_one();
  Child second = join_one();
}

TEST(JoinDeath, ManyTimesLeavesNoDescriptorAndNoMemory) {
  rig.start();
  const size_t files = JoinRig::open_file_count();
  uint64_t bytes = 0;
  const size_t count = test::kIsSanitized ? 50 : 200;  // a fork takes 100 ms there
  for (size_t i = 0; i < count; ++i) {
    Child child = join_one();
    child.kill_and_wait();
    LONGS_EQUAL(i + 1, rig.wait_for(Kind::kFreed, i + 1));
    if (i == 20) bytes = private_bytes();
  }
  // A separate thread closes connections, perhaps only after the last event.
  CHECK(JoinRig::becomes([&] { return JoinRig::open_file_count() == files; }));
  if (!test::kIsSanitized) CHECK(private_bytes() <= bytes + 256 * kKiB);
  CHECK(rig.table->generation(1) == count);
  Child first = join_one();
  Child second = join_one();
}

// The first process owns the pool and is killed. The second process, which has joined the pool,
// reports what it saw.
BP_PROBE(OwnerIsKilled) {
  JoinRig rig;
  rig.start();
  const pid_t owner = getpid();
  Child joiner = rig.fork_joiner([&](JoinOptions& options) {
    prctl(PR_SET_PDEATHSIG, 0);
    JoinedPool joined = JoinedPool::join(options).take();
    BP_PROBE_CHECK(joined.ready().ok() && !joined.is_owner_gone());
    BP_PROBE_CHECK(kill(owner, SIGKILL) == 0);
    BP_PROBE_CHECK(test::has_input(joined.control_fd()));
    BP_PROBE_CHECK(JoinRig::becomes([&] { return joined.is_owner_gone(); }));
    joined.fifo().address[0] = std::byte{1};  // mappings stay, so that FIFOs can be drained
    auto again = JoinedPool::join(options);
    BP_PROBE_CHECK(!again.ok());
    BP_PROBE_CHECK(std::strcmp(again.error().answer,
                               "this process belonged to a pool whose owner is gone") == 0);
    std::filesystem::remove(rig.path);
    std::fputs("all was seen\n", stderr);
  });
  for (;;) pause();
}

TEST(JoinDeath, OfTheOwnerIsSeenAndNobodyComesBack) {
  const test::Ended ended = test::run_fresh("OwnerIsKilled");
  LONGS_EQUAL(SIGKILL, ended.signal);
  CHECK_TEXT(ended.said("all was seen"), ended.text);
}

TEST(JoinDeath, AnOwnerThatStopsIsGoneToo) {
  rig.start();
  Child child = rig.fork_joiner([](JoinOptions& options) {
    JoinedPool joined = JoinedPool::join(options).take();
    (void)joined.ready();
    BP_PROBE_CHECK(JoinRig::becomes([&] { return joined.is_owner_gone(); }));
    BP_PROBE_CHECK(test::has_input(joined.control_fd()));
  });
  LONGS_EQUAL(1, rig.wait_for(Kind::kJoined));
  rig.server->stop();
  LONGS_EQUAL(0, child.status());
}

TEST_GROUP(JoinMany) {
  static constexpr uint32_t kCount = test::kIsSanitized ? 128 : 1024;
  JoinRig rig{kCount + 1};
};

// As many processes as one node shall support. BEDPLATE_TEST_FIGURES=1 prints the times.
TEST(JoinMany, AThousandJoinAndDieTogether) {
  rig.options.grants = {{.name = MemberName("relay"), .max_count = kCount}};
  rig.start();
  // One process forks all joiners, so that the test can end them together.
  int forked[2], go[2], ends[2];
  CHECK(pipe(forked) == 0 && pipe(go) == 0 && pipe(ends) == 0);
  Child parent = rig.fork_joiner([&](JoinOptions& options) {
    ::close(ends[1]);
    ::close(go[1]);
    for (uint32_t i = 0; i < kCount; ++i) {
      if (fork() != 0) continue;
      char ignored;
      [[maybe_unused]] ssize_t got = read(go[0], &ignored, 1);
      options.timeout_ns = JoinRig::kPatienceNs;
      auto joined = JoinedPool::join(options);
      if (!joined.ok() || !joined.value().ready().ok()) _exit(1);
      got = read(ends[0], &ignored, 1);
      _exit(0);
    }
    BP_PROBE_CHECK(write(forked[1], "1", 1) == 1);
    for (uint32_t i = 0; i < kCount; ++i) {
      int status = 0;
      ::wait(&status);
      BP_PROBE_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
  });
  ::close(go[0]);
  ::close(ends[0]);
  const uint64_t start_ns = monotonic_ns();
  char said = 0;
  CHECK(read(forked[0], &said, 1) == 1);
  const uint64_t forked_ns = monotonic_ns();
  ::close(go[1]);
  LONGS_EQUAL(kCount, rig.wait_for(Kind::kJoined, kCount));
  const uint64_t joined_ns = monotonic_ns();
  for (uint32_t i = 0; i <= kCount; ++i) CHECK(rig.table->state(i) == MemberState::kAlive);
  ::close(ends[1]);
  ::close(forked[0]);
  ::close(forked[1]);
  LONGS_EQUAL(kCount, rig.wait_for(Kind::kFreed, kCount));
  const uint64_t freed_ns = monotonic_ns();
  LONGS_EQUAL(0, parent.status());
  char text[160];
  std::snprintf(text, sizeof text,
                "%u forked in %" PRIu64 " ms, joined in %" PRIu64 " ms, gone in %" PRIu64
                " ms, %u wake-ups",
                kCount, (forked_ns - start_ns) / kNsPerMs, (joined_ns - forked_ns) / kNsPerMs,
                (freed_ns - joined_ns) / kNsPerMs, rig.keeper.wakes.load());
  if (std::getenv("BEDPLATE_TEST_FIGURES") != nullptr) std::puts(text);
}
