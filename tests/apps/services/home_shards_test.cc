// The choice of the shards that parts of a service live on. It is compared with a slow reference,
// which tries all choices.
#include "apps/services/home_shards.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

using Homes = std::vector<uint32_t>;

HomeWish anywhere(uint64_t load, Homes candidates = {0, 1}) {
  return {.candidates = std::move(candidates), .load = load};
}

HomeWish fixed_at(uint32_t shard, uint64_t load) { return anywhere(load, {shard}); }

uint64_t load_of_fullest(const std::vector<HomeWish>& parts, const Homes& homes) {
  std::vector<uint64_t> loads(1 + *std::max_element(homes.begin(), homes.end()));
  for (size_t i = 0; i < parts.size(); ++i) loads[homes[i]] += parts[i].load;
  return *std::max_element(loads.begin(), loads.end());
}

// The load of the fullest shard by the best of all choices among `shard_count` shards.
uint64_t least_load_of_fullest(const std::vector<HomeWish>& parts, uint32_t shard_count) {
  uint64_t choice_count = 1;
  for (size_t i = 0; i < parts.size(); ++i) choice_count *= shard_count;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (uint64_t choice = 0; choice < choice_count; ++choice) {
    Homes homes;
    for (uint64_t rest = choice; homes.size() < parts.size(); rest /= shard_count) {
      homes.push_back(static_cast<uint32_t>(rest % shard_count));
    }
    least = std::min(least, load_of_fullest(parts, homes));
  }
  return least;
}

}  // namespace

TEST_GROUP(HomeShards){};

TEST(HomeShards, PartsOfOneLoadTakeTurns) {
  const HomeWish any = anywhere(1, {4, 2, 7});
  CHECK(choose_homes(std::vector{any, any, any, any}) == Homes({4, 2, 7, 4}));
}

TEST(HomeShards, TheLargestIsPlacedFirst) {
  // In the order of the list the loads would be 7 and 4.
  const std::vector parts = {anywhere(1), anywhere(2), anywhere(3), anywhere(5)};
  const Homes homes = choose_homes(parts);
  CHECK(homes == Homes({0, 1, 1, 0}));
  LONGS_EQUAL(6, load_of_fullest(parts, homes));
}

TEST(HomeShards, PartsThatNameTheirShardAreCounted) {
  CHECK(choose_homes(std::vector{anywhere(2), fixed_at(0, 3), anywhere(2)}) == Homes({1, 0, 1}));
  // A shard that is no candidate gets no other part.
  CHECK(choose_homes(std::vector{anywhere(2), fixed_at(9, 1), anywhere(2)}) == Homes({0, 9, 1}));
}

TEST(HomeShards, OneHugePartIsAlone) {
  std::vector<HomeWish> parts(8, anywhere(1, {0, 1, 2}));
  parts.push_back(anywhere(1000, {0, 1, 2}));
  const Homes homes = choose_homes(parts);
  LONGS_EQUAL(0, homes[8]);
  LONGS_EQUAL(1, std::count(homes.begin(), homes.end(), 0U));
  LONGS_EQUAL(4, std::count(homes.begin(), homes.end(), 1U));
  LONGS_EQUAL(4, std::count(homes.begin(), homes.end(), 2U));
}

TEST(HomeShards, MoreShardsThanParts) {
  CHECK(choose_homes(std::vector{anywhere(3, {5, 6, 7, 8}), anywhere(9, {5, 6, 7, 8})}) ==
        Homes({6, 5}));
  CHECK(choose_homes(std::span<const HomeWish>()).empty());
}

TEST(HomeShards, APartGoesOnlyToItsCandidates) {
  const std::vector parts = {anywhere(9, {0}), anywhere(5, {0}), anywhere(1, {0, 1})};
  CHECK(choose_homes(parts) == Homes({0, 0, 1}));
}

TEST(HomeShards, LoadsMayBeAsLargeAsTheirSumAllows) {
  const uint64_t half = std::numeric_limits<uint64_t>::max() / 2;
  CHECK(choose_homes(std::vector{anywhere(half), anywhere(half), anywhere(1)}) == Homes({0, 1, 0}));
}

TEST(HomeShards, TheChoiceIsRepeatableAndNearTheBest) {
  std::mt19937 dice(20260101);
  for (int round = 0; round < 100; ++round) {
    const auto shard_count = static_cast<uint32_t>(2 + dice() % 2);
    Homes all;
    for (uint32_t i = 0; i < shard_count; ++i) all.push_back(i);
    std::vector<HomeWish> parts;
    for (size_t count = 1 + dice() % 7; parts.size() < count;) {
      parts.push_back(anywhere(1 + dice() % 1000, all));
    }
    const Homes homes = choose_homes(parts);
    CHECK(homes == choose_homes(parts));
    CHECK(3 * load_of_fullest(parts, homes) <= 4 * least_load_of_fullest(parts, shard_count));
  }
}
