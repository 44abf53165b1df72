// A shard's messenger as a source of its loop: the last poll before a sleep polls all groups.
#include "apps/boot/shard_messenger.h"

#include "tests/transport/messages/talkative_provider.h"
#include "tests/transport/shm/group_rig.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

TEST_GROUP(ShardMessenger){};

// A group that has been quiet for long is polled only now and then. A message that comes just
// before the sleep rings no bell, so the last poll must find it.
TEST(ShardMessenger, TheLastLookBeforeASleepIsAtQuietGroupsToo) {
  GroupRig first(shape_of(GroupKind::kLazy, 2)), second(shape_of(GroupKind::kLazy, 2));
  const MessageNames names;
  ShardMessenger shard("main", 0, names);
  TalkativeProvider peers;
  for (GroupRig* group : {&first, &second}) shard.add_group(group->join(0).shm);
  shard.add_peers(peers);
  Member* others[] = {&first.join(1), &second.join(1)};
  for (uint32_t round = 1; round <= 10; ++round) {
    peers.found = 1;
    for (uint32_t i = 0; i < 4 * Messenger::kQuietPolls; ++i) shard.poll(16);
    peers.found = 0;
    for (Member* other : others) CHECK(other->to(0).am_send(1, {}) == SendStatus::kDone);
    shard.announce_sleep();
    LONGS_EQUAL(2, shard.poll(16));
    shard.announce_awake();
  }
}
