// The flags of a meta command: their order, their tokens, and keys in base64.
#include <string>

#include "apps/kvd/meta_request_datapath.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate::kvd;

TEST_GROUP(MetaRequest) {
  MetaRequest request;
  char memory[MetaRequest::kMemoryBytes];

  std::string fault(std::string_view key, std::string_view flags) {
    const char* const fault = request.parse(key, flags, memory);
    return fault != nullptr ? fault : "";
  }
};

TEST(MetaRequest, HasItsFlagsInOrder) {
  STRCMP_EQUAL("", fault("a", " v s  Oab k ").c_str());
  CHECK(request.order() == "vsOk");
  CHECK(request.has('v') && request.has('O'));
  CHECK_FALSE(request.has('q') || request.has('o') || request.has('V'));
  CHECK(request.key == "a" && request.key_text == "a");
  CHECK(request.opaque == "Oab");
  STRCMP_EQUAL("", fault("b", "").c_str());  // nothing of the last request is left
  CHECK(request.order().empty());
  CHECK_FALSE(request.has('v'));
  LONGS_EQUAL(1, request.delta);
}

TEST(MetaRequest, ReadsTokens) {
  STRCMP_EQUAL("", fault("a", "T-1 N30 R5 F4294967295 C18446744073709551615 J7 D2 MA").c_str());
  LONGS_EQUAL(-1, request.expiry_s);
  LONGS_EQUAL(30, request.missing_expiry_s);
  LONGS_EQUAL(5, request.recache_s);
  CHECK(request.client_flags == UINT32_MAX && request.version == UINT64_MAX);
  LONGS_EQUAL(7, request.initial);
  LONGS_EQUAL(2, request.delta);
  CHECK_EQUAL('A', request.mode);
}

// Flags without a token ignore the text behind the letter, as memcached does.
TEST(MetaRequest, TakesEachFlagOnce) {
  const std::string letters = "vkOqTcfFtsbCMNRDJIhluxPL";
  std::string all;
  for (const char letter : letters) all += std::string(" ") + letter + "1";
  STRCMP_EQUAL("", fault("a2V5", all).c_str());
  CHECK(request.order() == letters);
  for (int letter = '!'; letter < 256; ++letter) {
    const std::string flag = std::string(1, static_cast<char>(letter)) + "1";
    const bool is_known = letters.find(static_cast<char>(letter)) != letters.npos;
    STRCMP_EQUAL(is_known ? "" : "CLIENT_ERROR invalid flag\r\n", fault("a2V5", flag).c_str());
    STRCMP_EQUAL(is_known ? "CLIENT_ERROR duplicate flag\r\n" : "CLIENT_ERROR invalid flag\r\n",
                 fault("a2V5", flag + " " + flag).c_str());
  }
}

TEST(MetaRequest, DecodesAKeyOfAnyLength) {
  const std::pair<const char*, std::string> all[] = {{"YQ==", "a"},
                                                     {"YWI=", "ab"},
                                                     {"YWJj", "abc"},
                                                     {"YWJjZA==", "abcd"},
                                                     {"AAEC/v8=", std::string("\0\1\2\xfe\xff", 5)},
                                                     {"+/+/", "\xfb\xff\xbf"}};
  for (const auto& [text, key] : all) {
    STRCMP_EQUAL("", fault(text, "b k").c_str());
    CHECK(request.key == key);
    CHECK(request.key_text == text);
  }
  STRCMP_EQUAL("", fault(std::string(248, 'A'), "b").c_str());
  LONGS_EQUAL(186, request.key.size());
  STRCMP_EQUAL("CLIENT_ERROR error decoding key\r\n", fault(std::string(250, 'A'), "b").c_str());
}

TEST(MetaRequest, KeepsItsTexts) {
  std::string key(250, 'k'), flags = "k O" + std::string(32, 'o');
  STRCMP_EQUAL("", fault(key, flags).c_str());
  request.keep(memory);
  const std::string kept_key = key, kept_opaque = flags.substr(2);
  key.assign(key.size(), '-');
  flags.assign(flags.size(), '-');
  CHECK(request.key_text == kept_key);
  CHECK(request.opaque == kept_opaque);
}
