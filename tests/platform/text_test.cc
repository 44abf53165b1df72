// Lists of words.
#include "platform/text.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Text){};

TEST(Text, WordsHaveCommasBetweenThem) {
  std::string list;
  add_word(&list, "one");
  STRCMP_EQUAL("one", list.c_str());
  add_word(&list, "two");
  add_word(&list, "three");
  STRCMP_EQUAL("one, two, three", list.c_str());
}
