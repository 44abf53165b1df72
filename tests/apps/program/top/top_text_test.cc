#include "apps/program/top/top_text.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::string text_of(const TopSection& section, const TopTextOptions& options) {
  std::string text;
  for (const std::string& line : section_lines(section, options).lines) {
    CHECK_TEXT(line.size() <= options.columns, line.c_str());
    text += line + "\n";
  }
  return text;
}

TopSection table() {
  return {"shard",
          {{"cpu", "cpu", TopAspect::kLabel},
           {"busy_ns", "busy", TopAspect::kShare},
           {"received_datagrams", "received_datagrams", TopAspect::kRate}},
          {{"main", {{"3"}, {"12%"}, {"5/s"}}}, {"other", {{"11"}, {"3%"}, {"12.5M/s"}}}},
          2};
}

}  // namespace

TEST_GROUP(TopText){};

TEST(TopText, ATableHasHeadsAboveItsColumns) {
  STRCMP_EQUAL("shard\n"
               "                     received\n"
               "         cpu  busy  datagrams\n"
               "  main   3     12%        5/s\n"
               "  other  11     3%    12.5M/s\n"
               "  2 more: all 0\n",
               text_of(table(), {}).c_str());
}

TEST(TopText, WhatDoesNotFitFollowsBelowOrIsLeftOut) {
  STRCMP_EQUAL("shard\n"
               "         cpu  busy\n"
               "  main   3     12%\n"
               "  other  11     3%\n"
               "          received\n"
               "         datagrams\n"
               "  main         5/s\n"
               "  other    12.5M/s\n"
               "  2 more: all 0\n",
               text_of(table(), {.columns = 20}).c_str());
  STRCMP_EQUAL("shard\n"
               "         cpu  busy\n"
               "  main   3     12%\n"
               "  other  11     3%\n"
               "  2 more: all 0\n",
               text_of(table(), {.columns = 20, .has_all = false}).c_str());
}

TEST(TopText, AListStandsInAsManyColumnsAsFit) {
  TopSection list = {"pool", {}, {{"", {}}}, 0};
  for (const char* name : {"a", "long_name", "b"}) {
    list.columns.push_back({name, name, TopAspect::kLevel});
    list.rows[0].values.push_back({"12"});
  }
  STRCMP_EQUAL("pool\n"
               "  a          12    b          12\n"
               "  long_name  12\n",
               text_of(list, {.columns = 40}).c_str());
  STRCMP_EQUAL("pool\n"
               "  a          12\n"
               "  long_name  12\n"
               "  b          12\n",
               text_of(list, {.columns = 20}).c_str());
}

TEST(TopText, NoLineIsLongerThanTheTerminal) {
  TopSection section = table();
  section.title = std::string(100, 't');
  section.rows[0].instance = std::string(63, 'i');
  for (size_t columns = 1; columns < 120; ++columns) text_of(section, {.columns = columns});
  STRCMP_EQUAL("abc~", fit_columns("abcdef", 4).c_str());
  STRCMP_EQUAL("", fit_columns("abcdef", 0).c_str());
}
