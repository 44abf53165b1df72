// Users by name and by number, against what the C library says of them.
#include "platform/user.h"

#include <cstdio>
#include <string>

#include <pwd.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(User) {
  static void refused(const char* text) {
    const auto found = find_user_id(text);
    CHECK_TEXT(!found.ok(), text);
    CHECK(found.error().kind == ErrorKind::kConfiguration);
    STRCMP_EQUAL((std::string("looking for the user ") + text).c_str(), found.error().doing);
    STRCMP_EQUAL("no such user in /etc/passwd", found.error().answer);
    CHECK(found.error().cure[0] != '\0');
  }
};

TEST(User, EveryNameOfTheFileHasItsNumber) {
  int checked = 0;
  FILE* file = std::fopen("/etc/passwd", "re");
  CHECK(file != nullptr);
  while (const passwd* entry = fgetpwent(file)) {
    CHECK_EQUAL(entry->pw_uid, find_user_id(entry->pw_name).take());
    ++checked;
  }
  std::fclose(file);
  CHECK(checked > 0);
}

TEST(User, ANumberIsItself) {
  CHECK_EQUAL(0u, find_user_id("0").take());
  CHECK_EQUAL(123456789u, find_user_id("123456789").take());
  CHECK_EQUAL(4294967294u, find_user_id("4294967294").take());
}

TEST(User, RefusesWhatIsNobody) {
  // The last two numbers are no user's; parts of names and of lines are no names.
  for (const char* text : {"", "-1", "4294967295", "4294967296", "1x", "roo", "root:", "root:x"}) {
    refused(text);
  }
}
