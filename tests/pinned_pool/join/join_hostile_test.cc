// Hostile processes that have joined: they do all that the kernel allows to the files that they
// received.
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "pinned_pool/taken_pages.h"
#include "tests/pinned_pool/join/join_rig.h"
#include "tests/support/hugepages.h"
#include "tests/support/skip.h"

using namespace bedplate;
using bedplate::test::become_other_user;
using bedplate::test::Child;
using bedplate::test::JoinRig;

namespace {

constexpr int kPunchHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

// A raw system call, since the runtime may replace the C library's function.
void give_pages_back(const Segment& segment) {
  BP_PROBE_CHECK(
      syscall(SYS_fallocate, segment.memfd, kPunchHole, 0L, static_cast<long>(segment.bytes)) == 0);
}

bool is_zero(const Segment& segment) {
  return segment.address[0] == std::byte{0} &&
         std::memcmp(segment.address, segment.address + 1, segment.bytes - 1) == 0;
}

// Starts a child that takes all free hugepages, and holds them until it is killed. Returns when the
// child has them.
Child take_free_hugepages(JoinRig& rig) {
  int ends[2];
  BP_PROBE_CHECK(pipe(ends) == 0);
  Child taker = rig.fork_joiner([&](JoinOptions&) {
    const uint64_t bytes = hugepage_counts(PageSize::k2MiB).available_count * 2 * kMiB;
    BP_PROBE_CHECK(bytes > 0 && mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1,
                                     0) != MAP_FAILED);
    BP_PROBE_CHECK(write(ends[1], "1", 1) == 1);
    for (;;) pause();
  });
  char done = 0;
  BP_PROBE_CHECK(read(ends[0], &done, 1) == 1);
  return taker;
}

// Starts the owner with a sealed pool. Fork the children that join before this: a later child
// inherits the sealed pool, and cannot unmap it to join.
void start_sealed(JoinRig& rig) {
  rig.server = JoinServer::create(rig.options).take();
  rig.server->add_own_member(0, MemberName("owner"));
  BP_PROBE_CHECK(rig.server->start().ok());
  rig.pool->seal();
  BP_PROBE_CHECK(rig.server->serve().ok());
}

}  // namespace

TEST_GROUP(JoinHostile){};

// Until the holes are filled, the owner and other members read zeros there. The next joiner gets a
// part without holes.
TEST(JoinHostile, HolesAreFilledBeforeAPlaceIsGivenOutAgain) {
  JoinRig rig;
  rig.keeper.forgets = false;
  rig.start();
  Child hostile = rig.fork_joiner([](JoinOptions& options) {
    if (getuid() == 0) become_other_user();
    JoinedPool joined = JoinedPool::join(options).take();
    BP_PROBE_CHECK(joined.ready().ok());
    std::memset(joined.own_heap()->address, 0x5a, joined.own_heap()->bytes);
    give_pages_back(*joined.own_heap());
    joined.own_heap()->address[kMiB] = std::byte{0x5a};
    give_pages_back(joined.fifo());
  });
  LONGS_EQUAL(0, hostile.status());
  LONGS_EQUAL(1, rig.wait_for(JoinEvent::Kind::kQuiet));
  CHECK(has_holes(*rig.heaps[0]) && has_holes(*rig.fifo));
  CHECK(rig.heaps[0]->address[0] == std::byte{0} && rig.fifo->address[0] == std::byte{0});
  CHECK_FALSE(has_holes(*rig.heaps[1]) || has_holes(*rig.members));
  rig.keeper.forgets = true;
  LONGS_EQUAL(1, rig.wait_for(JoinEvent::Kind::kFreed));
  CHECK_FALSE(has_holes(*rig.heaps[0]) || has_holes(*rig.fifo));
  CHECK(is_zero(*rig.heaps[0]));
}

// Only processes of the owner's own user get hugepages. Such a process can also punch holes.
BP_PROBE(join_hostile_hugepages) {
  JoinRig rig;
  Segment& heap = *rig.pool->create_segment("heap:huge", 4 * kMiB, PageSize::k2MiB, 1).take();
  rig.options.grants[0].heaps[0] = &heap;
  rig.options.grants[0].uid = getuid();
  rig.keeper.forgets = false;
  rig.start();
  Child first = rig.fork_joiner([](JoinOptions& options) {
    JoinedPool joined = JoinedPool::join(options).take();
    BP_PROBE_CHECK(joined.ready().ok());
    std::memset(joined.own_heap()->address, 0x5a, joined.own_heap()->bytes);
    BP_PROBE_CHECK(syscall(SYS_fallocate, joined.own_heap()->memfd, kPunchHole, 0L,
                           static_cast<long>(2 * kMiB)) == 0);
  });
  BP_PROBE_CHECK(first.status() == 0);
  BP_PROBE_CHECK(rig.wait_for(JoinEvent::Kind::kQuiet) == 1);
  Child taker = take_free_hugepages(rig);
  rig.keeper.forgets = true;
  BP_PROBE_CHECK(JoinRig::becomes([&] { return rig.keeper.resets == 1; }));
  // The owner serves other processes meanwhile.
  rig.check_refused("the pool's configuration has no process of this name",
                    [](JoinOptions& options) { options.process = "relais"; });
  BP_PROBE_CHECK(rig.table->state(1) == MemberState::kQuiet);
  taker.kill_and_wait();
  BP_PROBE_CHECK(rig.wait_for(JoinEvent::Kind::kFreed) == 1);
  BP_PROBE_CHECK(!has_holes(heap) && is_zero(heap));
}

TEST(JoinHostile, APlaceWhoseHugepagesAreGoneWaitsForThem) {
  const test::LentHugepages pages(3);
  if (!pages.are_there()) BP_SKIP("3 hugepages of 2 MiB are not to be had here");
  BP_CHECK_PROBE(join_hostile_hugepages);
}

BP_PROBE(join_hostile_seals) {
  JoinRig rig;
  int ends[2];
  BP_PROBE_CHECK(pipe(ends) == 0);
  Child hostile = rig.fork_joiner([](JoinOptions& options) {
    become_other_user();
    JoinedPool joined = JoinedPool::join(options).take();
    for (uint32_t i = 0; i < options.pool->segment_count(); ++i) {
      for (const int seal : {F_SEAL_FUTURE_WRITE, F_SEAL_WRITE, F_SEAL_SEAL}) {
        (void)fcntl(options.pool->segment(i).memfd, F_ADD_SEALS, seal);
      }
    }
  });
  Child next = rig.fork_joiner([&](JoinOptions& options) {
    char go = 0;
    BP_PROBE_CHECK(read(ends[0], &go, 1) == 1);
    auto joined = JoinedPool::join(options);
    if (!joined.ok()) std::fprintf(stderr, "%s\n", joined.error().answer);
    BP_PROBE_CHECK(joined.ok() && joined.value().ready().ok());
  });
  start_sealed(rig);
  BP_PROBE_CHECK(hostile.status() == 0);
  BP_PROBE_CHECK(write(ends[1], "1", 1) == 1);
  BP_PROBE_CHECK(next.status() == 0);
}

TEST(JoinHostile, ASealKeepsNobodyOut) {
  if (getuid() != 0) BP_SKIP("only root can become another user");
  BP_CHECK_PROBE(join_hostile_seals);
}
