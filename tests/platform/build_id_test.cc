#include "platform/build_id.h"

#include <cstring>

#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(BuildId){};

// The linker's default: SHA-1, 20 bytes. tests/guest compares it with the program's build ID.
TEST(BuildId, IsWhatTheLinkerLeft) {
  BP_SKIP_UNDER_SANITIZER();  // sanitizer builds request no build ID
  const BuildId id = build_id();
  LONGS_EQUAL(40, std::strlen(id.text));
  LONGS_EQUAL(40, std::strspn(id.text, "0123456789abcdef"));
  STRCMP_EQUAL(id.text, build_id().text);
}
