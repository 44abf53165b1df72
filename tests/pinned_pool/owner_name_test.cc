#include "pinned_pool/owner_name.h"

#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(OwnerName){};

TEST(OwnerName, HoldsAText) {
  STRCMP_EQUAL("heap", OwnerName("heap").text);
  STRCMP_EQUAL("", OwnerName().text);
  CHECK(OwnerName("heap").view() == "heap");
}

TEST(OwnerName, HoldsAKindAndAName) {
  STRCMP_EQUAL("volume:ram0", OwnerName("volume", "ram0").text);
  STRCMP_EQUAL("volume:ram", OwnerName(std::string_view("volumes").substr(0, 6),
                                       std::string_view("ram0").substr(0, 3))
                                 .text);
}

TEST(OwnerName, ComparesItsText) {
  CHECK(OwnerName("a", "b") == OwnerName("a:b"));
  CHECK_FALSE(OwnerName("a") == OwnerName("A"));
  CHECK_FALSE(OwnerName("heap") == OwnerName("heap2"));
}

TEST(OwnerName, OverlongIsCutOffAndTerminated) {
  const std::string longest(300, 'x');
  LONGS_EQUAL(63, OwnerName(longest).view().size());
  LONGS_EQUAL(63, OwnerName(longest.c_str()).view().size());
  LONGS_EQUAL(63, OwnerName("volume", longest).view().size());
  LONGS_EQUAL(63, OwnerName(std::string_view(longest).substr(0, 63)).view().size());
  LONGS_EQUAL(63, OwnerName(std::string_view(longest).substr(0, 64)).view().size());
}
