// Processes that were let in and mean harm: they do to the files that they were handed what the
// kernel lets them do.
#include <fcntl.h>

#include "tests/pinned_pool/join_rig.h"
#include "tests/support/skip.h"

using namespace bedplate;
using bedplate::test::Child;
using bedplate::test::JoinRig;
using bedplate::test::become_other_user;

namespace {

// Starts the owner, sealed. What a forked child is to join is sealed in it, too, and could not be
// taken away: those who join a sealed pool are forked before.
void start_sealed(JoinRig& rig) {
  rig.server = JoinServer::create(rig.options).take();
  rig.server->add_own_member(0, MemberName("owner"));
  BP_PROBE_CHECK(rig.server->start().ok());
  rig.pool->seal();
  BP_PROBE_CHECK(rig.server->serve().ok());
}

}  // namespace

TEST_GROUP(JoinHostile) {};

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
