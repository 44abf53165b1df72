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
  STRCMP_EQUAL("a??31m", shown("a\xc2\x9b"
                               "31m")
                             .c_str());  // U+009B begins a sequence, too
  STRCMP_EQUAL("\xc2\xa0\xc3\x9b", shown("\xc2\xa0\xc3\x9b").c_str());
}

TEST(ShownText, WhatIsLongIsCutOffBeforeACharacter) {
  STRCMP_EQUAL((std::string(64, 'x') + "...").c_str(), shown(std::string(65, 'x')).c_str());
  STRCMP_EQUAL((std::string(63, 'x') + "...").c_str(),
               shown(std::string(63, 'x') + "\xc3\xa4").c_str());
}
