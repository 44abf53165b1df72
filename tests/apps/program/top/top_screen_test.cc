#include "apps/program/top/top_screen.h"

#include <string>

#include "apps/program/top/top_terminal.h"
#include "platform/units.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

TopView two_sections(double busy) {
  TopView view = {"/run/demo", "demo", "demo: pid 7, running", {}, {}};
  TopSection shard = {
      "shard",
      {{"busy_ns", "busy", TopAspect::kShare}, {"calls", "calls", TopAspect::kRate}},
      {},
      0};
  shard.rows.push_back({"main", {{"5%", busy}, {"1/s", 1}}});
  shard.rows.push_back({"other", {{"7%", 0.07}, {"9/s", 9}}});
  TopSection pool = {"pool", {{"total_bytes", "total_bytes", TopAspect::kLevel}}, {}, 0};
  pool.rows.push_back({"", {{"256 MiB", 256}}});
  view.sections = {shard, pool};
  return view;
}

std::string text_of(const TopPicture& picture) {
  std::string text;
  for (const std::string& line : picture.lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_GROUP(TopScreen) {
  TopScreen screen;
  uint64_t now_ns = 1000 * kNsPerSecond;

  void see(double busy = 0.05, size_t count = 1) {
    std::vector<TopView> views(count, two_sections(busy));
    for (size_t i = 0; i < count; ++i) views[i].path += std::to_string(i);
    screen.show(std::move(views), now_ns);
  }
  // Shows one appliance for each list of alerts.
  void see_alerts(const std::vector<std::vector<std::string>>& alerts) {
    std::vector<TopView> views;
    for (const auto& each : alerts) {
      views.push_back(two_sections(0.05));
      views.back().path += std::to_string(views.size());
      views.back().alerts = each;
    }
    screen.show(std::move(views), now_ns);
  }
  static std::vector<std::string> four() {
    return {"shard main: the client 10.0.0.7:51234 at 10.0.0.1:10809 has taken nothing of its "
            "answer for 12.3 s (1 in all)",
            "heap: it is nearly exhausted: 1 MiB of 158 MiB are free, and heap:cache (120 MiB) "
            "has the most",
            "process ann: its process 4711 has died, and none has joined in its place",
            "blockd stores disk0: its store /dev/sdb has answered nothing for 7.4 s (operations "
            "that wait: 3)"};
  }
  std::string text(size_t columns = 40, size_t rows = 9) {
    return text_of(screen.picture(columns, rows));
  }
  void check(const char* expected, const std::string& seen) {
    CHECK_TEXT(seen.find(expected) != std::string::npos, seen.c_str());
  }
  void check_not(const char* other, const std::string& seen) {
    CHECK_TEXT(seen.find(other) == std::string::npos, seen.c_str());
  }
  void press(std::initializer_list<int> keys) {
    for (const int key : keys) CHECK(screen.press(key));
    text();
  }
};

TEST(TopScreen, ShowsWhoseCountersTheyAreTheSectionsAndTheKeys) {
  see();
  STRCMP_EQUAL("demo: pid 7, running\n"
               "shard\n"
               "         busy  calls\n"
               "  main  >  5%    1/s\n"
               "  other    7%    9/s\n"
               "pool\n"
               "  total_bytes  256 MiB\n"
               "\n"
               "q:end space:freeze /:filter s:sort arro~\n",
               text().c_str());
}

// On a terminal of any size, no line is too long, and there are not too many lines.
TEST(TopScreen, FitsAnyTerminal) {
  see();
  text(20, 5);
  press({kTopDown});  // scrolls
  STRCMP_EQUAL("demo: pid 7, running\n"
               "         busy  calls\n"
               "  main     5%    1/s\n"
               "  other >  7%    9/s\n"
               "q:end space:freeze ~\n",
               text(20, 5).c_str());
  for (size_t columns = 0; columns < 100; columns += 7) {
    for (size_t rows = 0; rows < 60; rows += 3) {
      const TopPicture picture = screen.picture(columns, rows);
      CHECK(picture.lines.size() <= rows);
      for (const std::string& line : picture.lines) CHECK(line.size() <= columns);
      for (const TopMark& mark : picture.marks) {
        CHECK(mark.line < picture.lines.size() && mark.end <= columns);
      }
    }
  }
}

TEST(TopScreen, KeysMoveTheMarkAndItStaysWithItsNames) {
  see();
  text();
  press({kTopDown});
  check("  other >  7%", text());
  press({kTopRight});
  check("  other    7% >  9/s", text());
  press({'s'});  // the mark moves with its row
  check("shard, most calls", text());
  CHECK(text().find("other") < text().find("main"));
  check("  other    7% >  9/s", text());
  press({'s'});
  check("shard, least calls", text());
  CHECK(text().find("main") < text().find("other"));
  press({'s'});
  check_not("calls\n\n", text());
  check("shard\n", text());
  press({kTopEnd});
  check("total_bytes >256 MiB", text());
  press({kTopPageUp, kTopUp, kTopUp});
  check("  main     5% >  1/s", text());
}

// Rates appear with the second snapshot, before the values of the first one.
TEST(TopScreen, UntilAKeyChoosesOneTheMarkIsAtTheFirstValue) {
  TopView first = two_sections(0.05);
  first.sections.erase(first.sections.begin());
  screen.show({first}, now_ns);
  check("total_bytes >256 MiB", text());
  see();
  check("  main  >  5%", text());
  press({kTopDown});
  screen.show({first}, now_ns);
  check_not(">", text());
  see();
  check("  other >  7%", text());
}

TEST(TopScreen, AFilterLetsSectionsRowsOrColumnsPass) {
  see();
  text();
  press({'/', 'o', 't', 'h'});
  check("/oth_", text());
  check("other", text());
  check_not("main", text());
  press({'\r'});
  check_not("pool", text());
  check("/oth  q:end", text());
  press({'/', 'c', 'a', 'x', 127, 'l', '\r'});  // matches a column, which shows all rows
  check("calls", text());
  check("main", text());
  check_not("busy", text());
  press({27});
  check("busy", text());
  press({'/', 'q', 'q', '\r'});  // nothing matches, so keys do nothing
  check_not("shard", text());
  press({'s', kTopDown, kTopPageDown});
}

TEST(TopScreen, FrozenItStays) {
  see();
  text();
  press({' '});
  screen.show({}, now_ns);
  screen.show_error("gone");
  check("FROZEN", text());
  check("demo: pid 7", text());
  press({' '});
  screen.show_error("looking for appliances: none is running");
  check("looking for appliances", text());
  see();
  check("demo: pid 7", text());
}

TEST(TopScreen, TheGraphIsOfTheMarkedValueInTheLastTwoMinutes) {
  for (int i = 0; i < 200; ++i) {
    now_ns += kNsPerSecond;
    see(i < 100 ? 0.9 : i == 199 ? 0.0 : 0.45);  // the graph has lost the first 80 s
  }
  const std::string seen = text(130, 18);
  check("shard main busy: now 5%, at most 5%\n", seen);
  // There are 120 columns: the first 20 are full, the last is 0, the others are half full.
  check(("5% |" + std::string(20, '#') + std::string(100, ' ') + "\n").c_str(), seen);
  check((" 0 |" + std::string(119, '#') + " \n").c_str(), seen);
  press({'g'});
  check_not("at most", text(130, 18));
}

// A counter that does not grow shows its total. The graph of its rate leaves totals out.
TEST(TopScreen, TheGraphOfARateHasNoTotals) {
  const auto see_busy = [&](TopAspect aspect, double number, const char* value) {
    TopView view = two_sections(0);
    view.sections[0].columns[0].aspect = aspect;
    view.sections[0].rows[0].values[0] = {value, number};
    screen.show({view}, now_ns += kNsPerSecond);
  };
  see_busy(TopAspect::kTotal, 892e6, "892 ms");  // the first snapshot has no rate
  check("shard main busy: now 892 ms, at most 892 ms\n", text(80, 18));
  see_busy(TopAspect::kShare, 0.13, "13%");
  check("shard main busy: now 13%, at most 13%\n", text(80, 18));
  see_busy(TopAspect::kTotal, 893e6, "893 ms");
  check("shard main busy: now 0, at most 13%\n", text(80, 18));
  see_busy(TopAspect::kTotal, 893e6, "893 ms");
  see_busy(TopAspect::kShare, 0.07, "7%");
  check("shard main busy: now 7%, at most 13%\n", text(80, 18));
}

TEST(TopScreen, EachApplianceHasAHistoryOfItsOwn) {
  const auto view_of = [](const char* path, double busy) {
    TopView view = two_sections(busy);
    view.path = view.headline = path;
    view.sections[0].columns[0].aspect = TopAspect::kShare;
    view.sections[0].rows[0].values[0].text = busy > 0.5 ? "90%" : "5%";
    return view;
  };
  screen.show({view_of("/run/a", 0.9)}, now_ns);
  screen.show({view_of("/run/b", 0.05)}, now_ns += kNsPerSecond);  // one follows another
  check("shard main busy: now 5%, at most 5%\n", text(80, 18));
  screen.show({view_of("/run/a", 0.9), view_of("/run/b", 0.05)}, now_ns += kNsPerSecond);
  check("2/2 /run/b", text(80, 18));  // the one that was shown
  check("shard main busy: now 5%, at most 5%\n", text(80, 18));
}

TEST(TopScreen, TabGoesToTheNextAppliance) {
  see(0.05, 2);
  check("1/2 demo", text());
  press({'\t'});
  check("2/2 demo", text());
  press({'\t'});
  check("1/2 demo", text());
  see(0.05, 1);  // one appliance has gone
  check("demo: pid 7", text());
}

// All four alerts stay on the screen, whatever else it shows.
TEST(TopScreen, WhatNeedsALookStaysInSight) {
  see_alerts({four(), {}});
  const std::string seen = text(80, 24);
  STRCMP_EQUAL("! 4 need a look  1/2 demo: pid 7, running\n"
               "! shard main: the client 10.0.0.7:51234 at 10.0.0.1:10809 has taken nothing of\n"
               "  its answer for 12.3 s (1 in all)\n"
               "! heap: it is nearly exhausted: 1 MiB of 158 MiB are free, and heap:cache (120\n"
               "  MiB) has the most\n"
               "! process ann: its process 4711 has died, and none has joined in its place\n"
               "! blockd stores disk0: its store /dev/sdb has answered nothing for 7.4 s\n"
               "  (operations that wait: 3)\n",
               seen.substr(0, seen.find("shard\n")).c_str());
  check("q:end n:alerts space:freeze", seen);
  const auto expect_alerts = [&](const char* shown) {
    const std::string now = text(80, 24);
    check("! 4 need a look  1/2 demo: pid 7, running\n! shard main", now);
    check("! blockd stores disk0", now);
    check(shown, now);
  };
  press({kTopEnd});
  expect_alerts("pool");
  press({'/', 'q', 'q', '\r'});
  expect_alerts("/qq");
  press({27, ' '});
  screen.show({}, now_ns);
  expect_alerts("FROZEN");
  press({' ', '\t'});
  STRCMP_EQUAL("! 4 need a look in demo (tab)  2/2 demo: pid 7, running\n",
               text(80, 24).substr(0, 56).c_str());
}

TEST(TopScreen, WhatNeedsALookStandsOut) {
  see_alerts({four()});
  const TopPicture picture = screen.picture(80, 24);
  LONGS_EQUAL(2, picture.marks.size());
  LONGS_EQUAL(0, picture.marks[0].line);
  LONGS_EQUAL(0, picture.marks[0].begin);
  LONGS_EQUAL(std::string("! 4 need a look").size(), picture.marks[0].end);
  const TopMark& value = picture.marks[1];
  STRCMP_EQUAL(">  5%", picture.lines[value.line].substr(value.begin - 1, 5).c_str());
  see();
  LONGS_EQUAL(1, screen.picture(80, 24).marks.size());
}

// The smallest screen has a line of the alerts, and the chosen value.
TEST(TopScreen, TheSmallestHasBoth) {
  see_alerts({four()});
  STRCMP_EQUAL("! 4 need a look  de~\n"
               "! shard main: the c~\n"
               "         busy  calls\n"
               "  main  >  5%    1/s\n"
               "q:end n:alerts spac~\n",
               text(20, 5).c_str());
}

TEST(TopScreen, NShowsItInFullAndScrolls) {
  see_alerts({four()});
  text(20, 5);
  CHECK(screen.press('n'));
  STRCMP_EQUAL("! 4 need a look  de~\n"
               "! shard main: the\n"
               "  client\n"
               "  10.0.0.7:51234 at\n"
               "q:end n:back space:~\n",
               text(20, 5).c_str());
  std::string all;
  for (int i = 0; i < 40; ++i) {
    const TopPicture picture = screen.picture(20, 5);
    all += picture.lines[1].substr(2) + " ";
    CHECK(screen.press(kTopDown));
  }
  check("its process 4711 has died, and none has joined in its place", all);
  check("(operations that wait: 3)", text(40, 5));
  CHECK(screen.press(kTopUp));
  CHECK(screen.press(kTopPageUp));
  CHECK(screen.press(kTopHome));
  check("\n! shard main: the\n", text(20, 5));
  CHECK(screen.press(kTopEnd));
  check("wait: 3)\n", text(20, 5));
  CHECK(screen.press(kTopPageDown));
  see();  // no alert is left
  check("\nnothing needs a look\n", text(80, 24));
  CHECK(screen.press(27));
  check("busy", text(80, 24));
  CHECK(screen.press('n'));
  CHECK(screen.press('/'));  // a filter is for sections, so they are shown
  check("busy", text(80, 24));
}

TEST(TopScreen, EndsByItsKeysAlone) {
  see();
  CHECK_FALSE(screen.press('q'));
  CHECK_FALSE(screen.press(3));
  CHECK(screen.press('x'));
  CHECK(screen.press('/'));
  CHECK(screen.press('q'));  // a letter of the filter
  CHECK_FALSE(screen.press(3));
}

TEST_GROUP(TopKeys){};

TEST(TopKeys, SequencesAreOneKeyAndStrangeOnesNone) {
  TopKeys keys;
  keys.add("q\033[A\033OB\033[6~\033[15~\033[1;5Cx");
  for (const int key : {static_cast<int>('q'), static_cast<int>(kTopUp), static_cast<int>(kTopDown),
                        static_cast<int>(kTopPageDown), static_cast<int>('x')}) {
    LONGS_EQUAL(key, keys.next(false).value_or(-1));
  }
  CHECK_FALSE(keys.next(false).has_value());
}

TEST(TopKeys, AnEscapeIsOneOnceNothingFollows) {
  TopKeys keys;
  keys.add("\033");
  CHECK_FALSE(keys.next(false).has_value());
  keys.add("[");
  CHECK_FALSE(keys.next(false).has_value());
  keys.add("C");
  LONGS_EQUAL(kTopRight, *keys.next(false));
  keys.add("\033");
  LONGS_EQUAL(27, *keys.next(true));
  keys.add("\033q");
  LONGS_EQUAL(27, *keys.next(false));
  LONGS_EQUAL('q', *keys.next(false));
}
