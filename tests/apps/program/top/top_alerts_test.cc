#include "apps/program/top/top_alerts.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

TopView view_of(const char* name, size_t alert_count) {
  TopView view = {name, name, "", {}, {}};
  view.alerts.assign(alert_count, "heap: it is nearly exhausted");
  return view;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_GROUP(TopAlerts) {
  const std::vector<std::string> alerts = {"one is a word or two", "two more words", "three"};

  std::string brief(size_t columns, size_t rows) {
    return joined(alerts_in_brief(alerts, columns, rows));
  }
};

TEST(TopAlerts, TheHeadCountsThoseOfOtherAppliancesToo) {
  STRCMP_EQUAL("", alerts_head({view_of("demo", 0), view_of("west", 0)}, 0).c_str());
  STRCMP_EQUAL("! 1 needs a look", alerts_head({view_of("demo", 1)}, 0).c_str());
  const std::vector<TopView> views = {view_of("demo", 4), view_of("west", 2), view_of("east", 0)};
  STRCMP_EQUAL("! 4 need a look, 2 in west (tab)", alerts_head(views, 0).c_str());
  STRCMP_EQUAL("! 2 need a look, 4 in demo (tab)", alerts_head(views, 1).c_str());
  STRCMP_EQUAL("! 6 need a look in 2 others (tab)", alerts_head(views, 2).c_str());
  STRCMP_EQUAL("! 1 needs a look in west? (tab)",
               alerts_head({view_of("demo", 0), view_of("west\033", 1)}, 0).c_str());
  STRCMP_EQUAL("! 1 needs a look in a_name_that_is_long~ (tab)",
               alerts_head({view_of("", 0), view_of("a_name_that_is_longer", 1)}, 0).c_str());
}

TEST(TopAlerts, EachHasALineAndTheFirstOnesMore) {
  STRCMP_EQUAL("! one is a\n"
               "  word or two\n"
               "! two more\n"
               "  words\n"
               "! three\n",
               brief(14, 9).c_str());
  STRCMP_EQUAL("! one is a\n"
               "  word or two\n"
               "! two more wo~\n"
               "! three\n",
               brief(14, 4).c_str());
  STRCMP_EQUAL("! one is a wo~\n"
               "! two more wo~\n"
               "! three\n",
               brief(14, 3).c_str());
}

TEST(TopAlerts, ThoseThatHaveNoRowAreCounted) {
  STRCMP_EQUAL("! one is a word~\n"
               "! 2 more: press~\n",
               brief(16, 2).c_str());
  STRCMP_EQUAL("! one is a word or two\n"
               "! 2 more: press n\n",
               brief(40, 2).c_str());
  STRCMP_EQUAL("! one is a wor~\n", brief(15, 1).c_str());
  STRCMP_EQUAL("", brief(15, 0).c_str());
  for (size_t columns = 0; columns < 20; ++columns) {
    for (const std::string& line : alerts_in_brief(alerts, columns, 3)) {
      CHECK(line.size() <= columns);
    }
  }
  STRCMP_EQUAL("", brief(0, 4).c_str());
  STRCMP_EQUAL("", joined(alerts_in_brief({}, 80, 7)).c_str());
}

TEST(TopAlerts, InFullNothingIsCutOff) {
  STRCMP_EQUAL("! its store\n"
               "  /a/very_lo\n"
               "  ng/path is\n"
               "! two\n",
               joined(alerts_in_full({"its store /a/very_long/path is", "two"}, 12)).c_str());
  STRCMP_EQUAL("nothing needs a look\n", joined(alerts_in_full({}, 80)).c_str());
  for (size_t columns = 0; columns < 20; ++columns) {
    for (const std::string& line : alerts_in_full(alerts, columns)) CHECK(line.size() <= columns);
  }
}
