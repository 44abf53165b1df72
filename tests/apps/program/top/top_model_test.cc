#include "apps/program/top/top_model.h"

#include <algorithm>

#include "tests/apps/program/counters_scene.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using namespace bedplate::test;

namespace {

struct TopScene : CountersScene {
  std::vector<TopSection> sections() { return top_sections(counter_changes(before.get(), *now)); }
  static std::string columns_of(const TopSection& section) {
    std::string text;
    for (const TopColumn& column : section.columns) {
      text += (text.empty() ? "" : ", ") + column.name;
    }
    return text;
  }
  static const TopValue& value(const TopSection& section, size_t row, const char* name) {
    const auto found = std::find_if(section.columns.begin(), section.columns.end(),
                                    [&](const TopColumn& one) { return one.name == name; });
    CHECK_TEXT(found != section.columns.end(), name);
    return section.rows[row].values[static_cast<size_t>(found - section.columns.begin())];
  }
};

}  // namespace

TEST_GROUP_BASE(TopModel, TopScene){};

TEST(TopModel, WhatHasChangedComesFirstAndWhatIsZeroIsLeftOut) {
  begin({scene_set<ShardLike>("", "shard", "main"), scene_set<ShardLike>("", "shard", "other"),
         scene_set<ShardLike>("", "shard", "third")});
  of<ShardLike>(0).stalls.set(2);
  of<ShardLike>(1).rounds.set(10);
  before = look();
  of<ShardLike>(0).rounds.add(1);
  of<ShardLike>(0).busy_ns.add(1);
  of<ShardLike>(0).answer_ns.add(1000);
  now = look();
  const auto all = sections();
  LONGS_EQUAL(1, all.size());
  STRCMP_EQUAL("shard", all[0].title.c_str());
  STRCMP_EQUAL("busy, rounds, answer, answer p50, answer p99, answer max, stalls",
               columns_of(all[0]).c_str());
  LONGS_EQUAL(2, all[0].rows.size());
  LONGS_EQUAL(1, all[0].idle_row_count);
  STRCMP_EQUAL("2", value(all[0], 0, "stalls").text.c_str());
  STRCMP_EQUAL("0/s", value(all[0], 1, "rounds").text.c_str());
  STRCMP_EQUAL("-", value(all[0], 1, "answer p50").text.c_str());
  STRCMP_EQUAL("0%", value(all[0], 1, "busy").text.c_str());
}

TEST(TopModel, WhatTheSealFixesIsLeftOut) {
  const std::vector<const char*> names = {"segment", "process", "way_back", "signals"};
  std::vector<CounterSet> all;
  for (const char* name : names) all.push_back(scene_set<ShardLike>("", name, ""));
  begin(all);
  for (size_t i = 0; i < names.size(); ++i) of<ShardLike>(i).stalls.set(1);
  now = look();
  const auto seen = sections();
  LONGS_EQUAL(2, seen.size());
  STRCMP_EQUAL("process", seen[0].title.c_str());
  STRCMP_EQUAL("signals", seen[1].title.c_str());
}

// The code knows no service by name, so an unknown service is shown like any other.
TEST(TopModel, ServicesOfAnyNameAreShownByTheirCounters) {
  begin({scene_set<OwnerLike>("", "pool", ""), scene_set<ShardLike>("", "shard", "main"),
         scene_set<ShardLike>("zither", "strings", "e"),
         scene_set<ShardLike>("zither", "strings", "a"),
         scene_set<HitCounters>("zither", "x", "")});
  of<OwnerLike>(0).bytes.set(1);
  for (size_t i = 1; i < 4; ++i) of<ShardLike>(i).stalls.set(i);
  of<HitCounters>(4).hits.set(9);
  now = look();
  const auto all = sections();
  LONGS_EQUAL(4, all.size());
  STRCMP_EQUAL("shard", all[0].title.c_str());
  STRCMP_EQUAL("zither strings", all[1].title.c_str());
  LONGS_EQUAL(2, all[1].rows.size());
  STRCMP_EQUAL("a", all[1].rows[1].instance.c_str());
  STRCMP_EQUAL("zither", all[2].title.c_str());
  CHECK(all[2].is_list());
  STRCMP_EQUAL("pool", all[3].title.c_str());
}

TEST(TopModel, HowFullMemoryIsIsABarAsLongAsItsOwnersShare) {
  begin({scene_set<OwnerLike>("", "owner", "heap"), scene_set<OwnerLike>("", "owner", "small"),
         scene_set<OwnerLike>("", "owner", "full"), scene_set<OwnerLike>("", "owner", "foreign")});
  const auto set = [&](size_t index, uint64_t used, uint64_t bytes) {
    of<OwnerLike>(index).used_bytes.set(used);
    of<OwnerLike>(index).bytes.set(bytes);
  };
  set(0, 25, 100);
  set(1, 1, 2);
  set(2, 50, 50);
  set(3, kNoValue, 100);
  now = look();
  const auto all = sections();
  STRCMP_EQUAL("share, bytes, used_bytes", columns_of(all[0]).c_str());
  STRCMP_EQUAL("#####...............  25%", value(all[0], 0, "share").text.c_str());
  STRCMP_EQUAL(".                     50%", value(all[0], 1, "share").text.c_str());
  STRCMP_EQUAL("##########           100%", value(all[0], 2, "share").text.c_str());
  STRCMP_EQUAL("-", value(all[0], 3, "share").text.c_str());
  STRCMP_EQUAL("-", value(all[0], 3, "used_bytes").text.c_str());
  DOUBLES_EQUAL(0.25, value(all[0], 0, "share").number, 1e-9);
}

// Memory that is only nearly full does not get a full bar.
TEST(TopModel, OnlyWhatIsFullLooksFull) {
  begin({scene_set<OwnerLike>("", "owner", "heap")});
  of<OwnerLike>(0).bytes.set(100'000);
  of<OwnerLike>(0).used_bytes.set(99'999);
  now = look();
  STRCMP_EQUAL("###################. 100%", value(sections()[0], 0, "share").text.c_str());
}

TEST(TopModel, NumbersTakeFewColumns) {
  STRCMP_EQUAL("0.5/s", rate_text(0.5, "requests").c_str());
  STRCMP_EQUAL("0/s", rate_text(0, "requests").c_str());
  STRCMP_EQUAL("9999/s", rate_text(9999, "requests").c_str());
  STRCMP_EQUAL("12.3k/s", rate_text(12'345, "requests").c_str());
  STRCMP_EQUAL("12.3M/s", rate_text(12'345'678, "requests").c_str());
  STRCMP_EQUAL("1.5 MiB/s", rate_text(1.5 * (1 << 20), "bytes").c_str());
  STRCMP_EQUAL("0.3%", share_text(0.003).c_str());
  STRCMP_EQUAL("0%", share_text(0).c_str());
  STRCMP_EQUAL("100%", share_text(1).c_str());
  STRCMP_EQUAL("123M", amount_text(123'456'789, "items").c_str());
  STRCMP_EQUAL("18447T/s", rate_text(1.8446744e16, "items").c_str());
}
