#include "platform/shown_text.h"

#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(ShownText){
    static std::string shown(std::string_view from){return ShownText(from).c_str();
}
}
;

TEST(ShownText, WordsStayAsTheyAre) {
  STRCMP_EQUAL("", shown("").c_str());
  STRCMP_EQUAL("disk0, \xc3\xa4", shown("disk0, \xc3\xa4").c_str());
  STRCMP_EQUAL(std::string(64, 'x').c_str(), shown(std::string(64, 'x')).c_str());
}

TEST(ShownText, WhatEndsOrSteersIsAQuestionMark) {
  using namespace std::string_view_literals;
  STRCMP_EQUAL("a?b", shown("a\0b"sv).c_str());
  STRCMP_EQUAL("?[31m???", shown("\x1b[31m\r\n\x7f").c_str());
}

TEST(ShownText, WhatIsLongIsCutOffBeforeACharacter) {
  STRCMP_EQUAL((std::string(64, 'x') + "...").c_str(), shown(std::string(65, 'x')).c_str());
  STRCMP_EQUAL((std::string(63, 'x') + "...").c_str(),
               shown(std::string(63, 'x') + "\xc3\xa4").c_str());
}
