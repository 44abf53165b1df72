// The choice of a volume's shard. A volume gets the shard that it names. If it names none, it gets
// the shard with the fewest volumes on its drive's node; if that node has no shard, of all shards.
#include "apps/blockd/volume_shards.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

using Shards = std::vector<uint32_t>;

// Shards 1 and 2 on node 0, shards 3 and 4 on node 1.
constexpr VolumeShardChoice kChoices[] = {{1, 0}, {2, 0}, {3, 1}, {4, 1}};

Shards chosen(const std::vector<VolumeWish>& volumes) {
  return choose_volume_shards(volumes, kChoices);
}

}  // namespace

TEST_GROUP(VolumeShards){};

TEST(VolumeShards, ThoseThatAreAtNoNodeSpreadOverAll) {
  CHECK(chosen({{}, {}, {}, {}, {}}) == Shards({1, 2, 3, 4, 1}));
}

TEST(VolumeShards, AVolumeLivesOnTheNodeOfItsDrive) {
  const VolumeWish near_one = {.node = 1};
  CHECK(chosen({near_one, near_one, near_one, {.node = 0}}) == Shards({3, 4, 3, 1}));
}

TEST(VolumeShards, WhereNoShardIsNearAnyWillDo) {
  CHECK(chosen({{.node = 7}, {.node = 7}}) == Shards({1, 2}));
}

TEST(VolumeShards, OneThatNamesItsShardLivesThereAndIsCounted) {
  CHECK(chosen({{}, {.shard = 1}, {.shard = 9, .node = 0}, {}}) == Shards({2, 1, 9, 3}));
}

TEST(VolumeShards, DistinctOnesAreSorted) {
  CHECK(distinct_shards({4, 1, 4, 2}) == Shards({1, 2, 4}));
  CHECK(distinct_shards({}).empty());
}
