// Words and numbers of a text.
#include "platform/text_words.h"

#include <cstdint>
#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

template <typename Number>
bool is(std::string_view word, Number expected, int base = 10) {
  Number number = 0;
  return parse_number(word, &number, base) && number == expected;
}
bool is_none(std::string_view word) {
  uint16_t number = 0;
  return !parse_number(word, &number);
}

}  // namespace

TEST_GROUP(TextWords){};

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
  CHECK(is<uint32_t>("ff", 255, 16));
  for (const char* word : {"", "65536", "-1", "+1", "0x10", "12a", " 1", "1 "}) {
    CHECK_TEXT(is_none(word), word);
  }
}

TEST(TextWords, ANumberIsTakenFromTheFront) {
  std::string_view text = " \t12-015,x";
  LONGS_EQUAL(12, take_number<uint32_t>(&text, 7));
  CHECK(text == "-015,x");
  LONGS_EQUAL(-15, take_number<int>(&text, 7));
  CHECK(text == ",x");
  LONGS_EQUAL(7, take_number<int>(&text, 7));
  CHECK(text == ",x");
  text = "70000 ";
  LONGS_EQUAL(7, take_number<uint16_t>(&text, 7));  // it does not fit
  CHECK(text == "70000 ");
  CHECK(try_take_number<uint32_t>(&text) == 70000U && text == " ");
  CHECK(!try_take_number<uint32_t>(&text) && text == " ");
  text = "";
  LONGS_EQUAL(7, take_number<int>(&text, 7));
}
