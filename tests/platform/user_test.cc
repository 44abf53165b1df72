// Users by name and by number, compared with the C library's answers.
#include "platform/user.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <grp.h>
#include <pwd.h>

#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(User){static void refused(const char* text){const auto found = find_user_id(text);
CHECK_TEXT(!found.ok(), text);
CHECK(found.error().kind == ErrorKind::kConfiguration);
STRCMP_EQUAL((std::string("looking for the user ") + text).c_str(), found.error().doing);
STRCMP_EQUAL("no such user in /etc/passwd", found.error().answer);
CHECK(found.error().cure[0] != '\0');
}
}
;

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

TEST(User, EveryGroupOfTheFileHasItsNumber) {
  int checked = 0;
  FILE* file = std::fopen("/etc/group", "re");
  if (file == nullptr) BP_SKIP("there is no /etc/group here");
  while (const group* entry = fgetgrent(file)) {
    CHECK_EQUAL(entry->gr_gid, find_group_id(entry->gr_name).take());
    ++checked;
  }
  std::fclose(file);
  CHECK(checked > 0);
  CHECK_EQUAL(4711u, find_group_id("4711").take());
  const auto none = find_group_id("no-such-group");
  STRCMP_EQUAL("looking for the group no-such-group", none.error().doing);
  STRCMP_EQUAL("no such group in /etc/group", none.error().answer);
}

TEST(User, ANumberIsItself) {
  CHECK_EQUAL(0u, find_user_id("0").take());
  CHECK_EQUAL(123456789u, find_user_id("123456789").take());
  CHECK_EQUAL(4294967294u, find_user_id("4294967294").take());
}

TEST(User, RefusesWhatIsNobody) {
  // 4294967295 and 4294967296 are no user IDs; a part of a name or of a line is no name.
  for (const char* text : {"", "-1", "4294967295", "4294967296", "1x", "roo", "root:", "root:x"}) {
    refused(text);
  }
}

TEST(User, HasTheGroupsOfALogin) {
  FILE* file = std::fopen("/etc/passwd", "re");
  CHECK(file != nullptr);
  while (const passwd* entry = fgetpwent(file)) {
    const User user = find_user(entry->pw_name).take();
    CHECK_EQUAL(entry->pw_uid, user.id);
    CHECK_EQUAL(entry->pw_gid, user.group);
    std::vector<uint32_t> sorted = {entry->pw_gid};
    FILE* groups = std::fopen("/etc/group", "re");  // may not exist
    while (const group* each = groups == nullptr ? nullptr : fgetgrent(groups)) {
      for (char** member = each->gr_mem; *member != nullptr; ++member) {
        const bool is_more = each->gr_gid != entry->pw_gid;
        if (is_more && std::string(*member) == entry->pw_name) sorted.push_back(each->gr_gid);
      }
    }
    if (groups != nullptr) std::fclose(groups);
    std::vector<uint32_t> found = user.groups;
    std::sort(sorted.begin(), sorted.end());
    std::sort(found.begin(), found.end());
    CHECK_TEXT(sorted == found, entry->pw_name);
  }
  std::fclose(file);
  CHECK_EQUAL(0u, find_user("0").take().group);
}

TEST(User, ANumberWithoutALineHasNoGroup) {
  const auto found = find_user("4000000000");
  CHECK(!found.ok());
  STRCMP_CONTAINS("its group must be known", found.error().cure);
}
