#include "platform/plain_lines.h"

#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(PlainLines){// All lines with their numbers, and the fault that ends them.
                       static std::string read(std::string_view text){PlainLines lines(text);
std::string all;
while (lines.next()) all += std::to_string(lines.number()) + std::string(lines.line()) + " ";
if (lines.fault() == nullptr) return all;
CHECK_FALSE(lines.next());
return all + std::to_string(lines.number()) + ":" + std::to_string(lines.column()) + " " +
       lines.fault();
}
}
;

TEST(PlainLines, HaveAWordEach) {
  STRCMP_EQUAL("", read("").c_str());
  STRCMP_EQUAL("", read("\n\n").c_str());
  STRCMP_EQUAL("1a:1 3b:2 ", read("a:1\n\nb:2").c_str());
  STRCMP_EQUAL("1\xc3\xa4# ", read("\xc3\xa4#\n").c_str());
}

TEST(PlainLines, WhatNobodySeesIsRefusedByItsPosition) {
  using namespace std::string_view_literals;
  STRCMP_EQUAL("1:1 a byte order mark", read("\xef\xbb\xbf"
                                             "a:1\n")
                                            .c_str());
  STRCMP_EQUAL("1a 2:2 a byte order mark", read("a\nb\xef\xbb\xbf\nc").c_str());
  STRCMP_EQUAL("1a 3:1 a blank", read("a\n\n b\n").c_str());
  STRCMP_EQUAL("1:2 a blank", read("a ").c_str());
  STRCMP_EQUAL("1:2 a blank", read("a\xc2\xa0").c_str());
  STRCMP_EQUAL("1:1 a blank", read("  \n").c_str());
  STRCMP_EQUAL("1:3 a tab", read("ab\tc\n").c_str());
  STRCMP_EQUAL("1:2 a carriage return, as in Windows files", read("a\r\nb\r\n").c_str());
  STRCMP_EQUAL("1:2 a control character", read("a\0b\n"sv).c_str());
  STRCMP_EQUAL("1:1 a control character", read("\x7f").c_str());
}
