// Words of a counters file as items of JSON.
#include "apps/control/counter_words.h"

#include <cstring>
#include <string>
#include <vector>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

std::string said(const std::vector<uint64_t>& words) {
  char text[4096];
  JsonText json(text);
  json.begin_array();
  write_counter_words(words, &json);
  json.end_array();
  CHECK_FALSE(json.is_full());
  return {text, json.bytes()};
}
std::vector<uint64_t> words_of(std::string_view bytes) {
  std::vector<uint64_t> words((bytes.size() + 7) / 8);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

}  // namespace

TEST_GROUP(CounterWords){};

TEST(CounterWords, ZerosAreCounted) {
  STRCMP_EQUAL("[]", said({}).c_str());
  STRCMP_EQUAL("[-1,7,-3]", said({0, 7, 0, 0, 0}).c_str());
  STRCMP_EQUAL("[18446744073709551615]", said({~uint64_t{0}}).c_str());
}

TEST(CounterWords, ATextIsItsBytes) {
  STRCMP_EQUAL("[\"relay service\",-1,5]", said(words_of(std::string("relay service\0\0\0"
                                                                     "\0\0\0\0\0\0\0\0"
                                                                     "\5\0\0\0\0\0\0\0",
                                                                     32)))
                                               .c_str());
  STRCMP_EQUAL("[\"say \\\"hi\\\"\"]", said(words_of("say \"hi\"")).c_str());
  // A text that fills its words continues in the next word that has characters.
  STRCMP_EQUAL("[\"eight ofsixteen!\",-1]",
               said(words_of(std::string("eight ofsixteen!\0\0\0\0\0\0\0\0", 24))).c_str());
}

// Such words could be written as texts, too, but most of them are counters.
TEST(CounterWords, WhatIsShortOrNotPrintableIsANumber) {
  STRCMP_EQUAL("[29550]", said(words_of("ns")).c_str());
  STRCMP_EQUAL("[65]", said({'A'}).c_str());
  const std::string odd("eight ofx\0tail\0\0", 16);
  STRCMP_EQUAL(("[\"eight of\"," + std::to_string(words_of(odd)[1]) + "]").c_str(),
               said(words_of(odd)).c_str());
}
