// Words and numbers of a line.
#include "transport/text_words.h"

#include <cstdint>
#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(TextWords){template <typename Number>
                      static bool is(std::string_view word, Number expected){Number number = 0;
return parse_number(word, &number) && number == expected;
}
static bool is_none(std::string_view word) {
  uint16_t number = 0;
  return !parse_number(word, &number);
}
}
;

TEST(TextWords, SpacesAloneSeparateThem) {
  std::string_view line = "  get\ta   b ";
  CHECK(take_word(&line) == "get\ta");
  CHECK(take_word(&line) == "b");
  CHECK(take_word(&line).empty());
  CHECK(line.empty());
  CHECK(take_word(&line).empty());
}

TEST(TextWords, AWordLiesWhereTheTextDoes) {
  const std::string text = "one two";
  std::string_view line = text;
  take_word(&line);
  POINTERS_EQUAL(text.data() + 4, take_word(&line).data());
}

TEST(TextWords, NumbersAreWholeAndFit) {
  CHECK(is<uint16_t>("0", 0) && is<uint16_t>("65535", 65535) && is<int64_t>("-7", -7));
  for (const char* word : {"", "65536", "-1", "+1", "0x10", "12a", " 1", "1 "}) {
    CHECK_TEXT(is_none(word), word);
  }
}
