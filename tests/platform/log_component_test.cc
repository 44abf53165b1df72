// A source that renames its component defines BP_LOG_COMPONENT before its first include. The name
// does not affect sources that are compiled together with this one (scripts/unity.sh).
#pragma push_macro("BP_LOG_COMPONENT")
#undef BP_LOG_COMPONENT
#define BP_LOG_COMPONENT "tests-of/the-log"
#include "platform/log_component.h"

#include <string>
#include <vector>

#include "platform/log.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using bedplate::test::StderrCapture;

TEST_GROUP(LogComponent){void teardown() override{set_log_level(LogLevel::kInfo);
}

static const LogComponent* find(std::string_view name) {
  for (const LogComponent* each = LogComponent::first(); each; each = each->next()) {
    if (each->name() == name) return each;
  }
  return nullptr;
}
static LogLevel level_of(std::string_view name) {
  CHECK(find(name) != nullptr);
  return find(name)->level();
}
}
;

TEST(LogComponent, IsTheFolderOfTheSource) {
  STRCMP_EQUAL("apps/boot", LogComponentName::of_source("apps/boot/shard.cc").text);
  STRCMP_EQUAL("apps/boot", LogComponentName::of_source("./apps/boot/shard.cc").text);
  STRCMP_EQUAL("echo", LogComponentName::of_source("./echo.cc").text);
  STRCMP_EQUAL("echo", LogComponentName::of_source("echo.cc").text);
  STRCMP_EQUAL("echo", LogComponentName::of_source("echo").text);
  STRCMP_EQUAL("/home/ann/src", LogComponentName::of_source("/home/ann/src/echo.cc").text);
  constexpr LogComponentName kLong("0123456789012345678901234567890123456789012345678901234567890");
  LONGS_EQUAL(LogComponentName::kBytesMax, std::string(kLong.text).size());
}

TEST(LogComponent, AllThatLogAreListedByTheirNames) {
  std::vector<std::string> names;
  for (const LogComponent* each = LogComponent::first(); each; each = each->next()) {
    names.emplace_back(each->name());
  }
  CHECK(find("apps/boot") != nullptr && find("platform") != nullptr);
  CHECK(find("tests-of/the-log") != nullptr);
  for (size_t i = 1; i < names.size(); ++i) {
    CHECK_TEXT(names[i - 1] < names[i], (names[i - 1] + ", " + names[i]).c_str());
  }
  LONGS_EQUAL(names.size(), set_log_level(LogLevel::kInfo));
}

TEST(LogComponent, ALevelIsThatOfWhatLiesBelow) {
  CHECK(set_log_level("apps", LogLevel::kWarning) > 1);
  CHECK(level_of("apps/boot") == LogLevel::kWarning);
  CHECK(level_of("platform") == LogLevel::kInfo);
  LONGS_EQUAL(1, set_log_level("apps/boot", LogLevel::kDebug));
  CHECK(level_of("apps/boot") == LogLevel::kDebug);
  for (const char* none : {"", "app", "apps/", "tests-of/the", "tests-of/the-log/more"}) {
    LONGS_EQUAL_TEXT(0, set_log_level(none, LogLevel::kError), none);
  }
  set_log_level(LogLevel::kError);
  CHECK(level_of("apps/boot") == LogLevel::kError);
}

TEST(LogComponent, LinesBelowItsLevelAreDropped) {
  StderrCapture capture;
  BP_LOG_DEBUG("not by default");
  set_log_level("tests-of", LogLevel::kDebug);
  BP_LOG_DEBUG("and this");
  set_log_level("tests-of/the-log", LogLevel::kError);
  BP_LOG_WARNING("not now");
  STRCMP_EQUAL("bedplate: and this\n", capture.finish().c_str());
}

TEST(LogComponent, LevelsHaveWords) {
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    CHECK(parse_log_level(to_text(level)) == level);
  }
  CHECK_FALSE(parse_log_level("").has_value());
  CHECK_FALSE(parse_log_level("loud").has_value());
}

#pragma pop_macro("BP_LOG_COMPONENT")
