// Names that are cut for owners and counters.
#include "platform/short_name.h"

#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(ShortName){};

TEST(ShortName, CutsWhatIsTooLong) {
  const std::string longest(kShortNameMax, 'n');
  STRCMP_EQUAL("disk0", short_name("disk0", 3).c_str());
  STRCMP_EQUAL(longest.c_str(), short_name(longest, 3).c_str());
  STRCMP_EQUAL((longest + "~3").c_str(), short_name(longest + "n", 3).c_str());
}
