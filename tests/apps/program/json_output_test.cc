#include "apps/program/json_output.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

void check(const char* expected, const JsonValue& json) {
  STRCMP_EQUAL(expected, json.dump(-1).c_str());
}

}  // namespace

TEST_GROUP(JsonOutput){};

TEST(JsonOutput, EachKindOfValue) {
  check("null", JsonValue());
  check("true", true);
  check("-3", -3);
  check("18446744073709551615", UINT64_MAX);
  check("-9223372036854775808", INT64_MIN);
  check("0.25", 0.25);
  check("\"text\"", "text");
  check("[]", JsonValue::array());
  check("{}", JsonValue::object());
  check("null", node_json(kAnyNode));
  check("1", node_json(1));
}

TEST(JsonOutput, ObjectsKeepTheOrderOfTheirKeys) {
  JsonValue json;
  json["z"] = 1;
  json["a"] = {{"list", JsonValue::array()}, {"is_good", false}};
  json["a"]["list"].push_back("x");
  json["z"] = 2;
  check("{\"z\":2,\"a\":{\"list\":[\"x\"],\"is_good\":false}}", json);
}

TEST(JsonOutput, WhatIsNoUtf8IsReplaced) {
  check("\"a\\\"\\n\\u0001\"", "a\"\n\x01");
  check("\"caf\xef\xbf\xbd\"", "caf\xc3");
}

TEST(JsonOutput, TextIsBareAndTheRestIsJson) {
  STRCMP_EQUAL("one \"word\"", JsonValue("one \"word\"").text().c_str());
  STRCMP_EQUAL("17", JsonValue(17).text().c_str());
}
