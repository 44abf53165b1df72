// TopHistory holds values for two minutes, and draws a graph of one value.
#include "apps/program/top/top_history.h"

#include <utility>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr uint64_t kSecond = TopHistory::kStepNs;
const TopKey kKey = {"cache", "", "gets"};

// A section of one row and one column.
std::vector<TopSection> section(TopAspect aspect, const char* text, double number) {
  TopSection one;
  one.title = kKey.section;
  one.columns = {{"gets", kKey.column, aspect}};
  one.rows = {{"", {{text, number}}}};
  return {std::move(one)};
}

}  // namespace

TEST_GROUP(TopHistory) {
  TopHistory history;
  void add(TopAspect aspect, const char* text, double number, uint64_t second) {
    history.add(section(aspect, text, number), second * kSecond);
  }
  std::string line(size_t row, uint64_t second) {
    const auto lines = history.graph(kKey, second * kSecond, 40, 4);
    return row < lines.size() ? lines[row] : "";
  }
};

TEST(TopHistory, DrawsAValueBesideItsScale) {
  add(TopAspect::kRate, "1/s", 1, 200);
  add(TopAspect::kRate, "20/s", 20, 201);
  const auto lines = history.graph(kKey, 201 * kSecond, 40, 5);
  LONGS_EQUAL(5, lines.size());
  STRCMP_EQUAL("cache gets: now 20/s, at most 20/s", lines[0].c_str());
  STRCMP_EQUAL("20/s |                                 #", lines[1].c_str());
  STRCMP_EQUAL("     |                                 #", lines[2].c_str());
  STRCMP_EQUAL("   0 |                                 #", lines[3].c_str());
  STRCMP_EQUAL("      -2 min                         now", lines[4].c_str());
}

TEST(TopHistory, DrawsALabelWithoutText) {
  add(TopAspect::kLabel, "", 0, 100);
  STRCMP_EQUAL("cache gets: now , at most ", line(0, 100).c_str());
  STRCMP_CONTAINS("0 |", line(2, 100).c_str());
}

TEST(TopHistory, KeepsTheLastValueOfASecondForTwoMinutes) {
  add(TopAspect::kLevel, "5", 5, 100);
  add(TopAspect::kLevel, "3", 3, 100);
  STRCMP_EQUAL("cache gets: now 3, at most 3", line(0, 100).c_str());
  history.add({}, (100 + TopHistory::kKeptNs / kSecond - 1) * kSecond);
  CHECK(!line(0, 219).empty());
  history.add({}, 100 * kSecond + TopHistory::kKeptNs);
  CHECK(line(0, 220).empty());
}

TEST(TopHistory, ShowsACounterThatStandsStillAsARateOfZero) {
  add(TopAspect::kTotal, "700", 700, 100);
  add(TopAspect::kRate, "9/s", 9, 101);
  STRCMP_EQUAL("cache gets: now 9/s, at most 9/s", line(0, 101).c_str());
  add(TopAspect::kTotal, "709", 709, 102);
  STRCMP_EQUAL("cache gets: now 0, at most 9/s", line(0, 102).c_str());
}

TEST(TopHistory, HasNoGraphOfAValueThatItDoesNotKnow) {
  add(TopAspect::kRate, "1/s", 1, 100);
  CHECK(history.graph({"cache", "", "sets"}, 100 * kSecond, 40, 5).empty());
  CHECK(history.graph(kKey, 100 * kSecond, 40, 2).empty());
}
