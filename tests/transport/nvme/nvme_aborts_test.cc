#include "transport/nvme/nvme_aborts.h"

#include "tests/transport/nvme/nvme_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

// nvme_queue_pair_test.cc has the aborts of several shards.
TEST_GROUP(NvmeAborts) { NvmeRig rig; };

// The late command ends while its abort is in progress.
TEST(NvmeAborts, NoCommandGetsTheIdOfOneThatIsBeingAborted) {
  CHECK(rig.start());
  rig.turn(10);
  rig.drive.holds_io = rig.drive.holds_admin = rig.drive.aborts = true;
  NvmeAsked late, next;
  rig.begin(late, NvmeAction::kRead, 0, 1);
  rig.turn(1020);
  LONGS_EQUAL(1, rig.queue_counters[0].timeouts.read());
  rig.drive.release_of(1);
  rig.turn(1);
  CHECK(late.is_done());
  LONGS_EQUAL(0, late.outcome);
  rig.begin(next, NvmeAction::kRead, 0, 1);
  rig.turn(2);  // the drive has the command
  rig.drive.holds_admin = false;
  rig.drive.release_of(0);  // the abort
  rig.turn(5);
  CHECK(!next.is_done());
  LONGS_EQUAL(0, rig.counters.aborts.read());
  rig.drive.holds_io = false;
  rig.drive.release_of(1);
  rig.turn(2);
  CHECK(next.is_done());
  LONGS_EQUAL(0, next.outcome);
  // The id is free again.
  for (int i = 0; i < 3; ++i) {
    NvmeAsked asked;
    rig.begin(asked, NvmeAction::kRead, 0, 1);
    rig.turn(2);
    CHECK(asked.is_done());
  }
  CHECK(rig.pair(0).queue().withheld() == NvmeQueue::kNone);
}
