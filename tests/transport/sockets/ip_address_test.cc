#include "transport/sockets/ip_address.h"

#include <cstring>
#include <sys/socket.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(IpAddress){};

TEST(IpAddress, ReadsBothFamilies) {
  const auto four = parse_ip_address("10.0.2.15");
  LONGS_EQUAL(AF_INET, four->family);
  LONGS_EQUAL(4, four->byte_count());
  MEMCMP_EQUAL("\x0A\x00\x02\x0F", four->bytes, 4);
  const auto six = parse_ip_address("fd00::f");
  LONGS_EQUAL(AF_INET6, six->family);
  LONGS_EQUAL(16, six->byte_count());
  LONGS_EQUAL(0x0F, six->bytes[15]);
}

TEST(IpAddress, KnowsGroups) {
  for (const char* text : {"224.0.0.1", "239.255.255.255", "ff00::", "ff3e::1"}) {
    CHECK_TEXT(parse_ip_address(text)->is_multicast(), text);
  }
  for (const char* text : {"223.255.255.255", "240.0.0.0", "fe80::1", "::"}) {
    CHECK_TEXT(!parse_ip_address(text)->is_multicast(), text);
  }
  CHECK(!IpAddress{}.is_multicast());
}

TEST(IpAddress, RefusesWhatIsNone) {
  for (const char* text : {"", "10.0.2", "10.0.2.256", "host", "::1%lo", " 1.2.3.4", "1.2.3.4/8"}) {
    CHECK_TEXT(!parse_ip_address(text), text);
  }
  CHECK(!parse_ip_address(std::string("10.0.2.15\0x", 11)));
}

TEST(IpAddress, ReadsPrefixes) {
  LONGS_EQUAL(24, parse_ip_prefix("10.0.2.15/24")->prefix_bits);
  LONGS_EQUAL(32, parse_ip_prefix("10.0.2.15/32")->prefix_bits);
  LONGS_EQUAL(128, parse_ip_prefix("::1/128")->prefix_bits);
}

TEST(IpAddress, RefusesPrefixesThatTheFamilyDoesNotHave) {
  for (const char* text : {"10.0.2.15", "10.0.2.15/", "10.0.2.15/0", "10.0.2.15/33", "::1/129",
                           "::1/256", "10.0.2.15/2 ", "10.0.2.15/-1", "/8", "10.0.2.15/8/8"}) {
    CHECK_TEXT(!parse_ip_prefix(text), text);
  }
}

TEST(IpAddress, APrefixContainsItsNetwork) {
  const auto contains = [](const char* prefix, const char* address) {
    return parse_ip_prefix(prefix)->contains(*parse_ip_address(address));
  };
  CHECK(contains("10.0.2.15/24", "10.0.2.1"));
  CHECK(!contains("10.0.2.15/24", "10.0.3.1"));
  CHECK(contains("10.0.2.15/23", "10.0.3.1"));
  CHECK(contains("10.0.2.15/32", "10.0.2.15"));
  CHECK(!contains("10.0.2.15/32", "10.0.2.14"));
  CHECK(contains("fd00::7/64", "fd00::1:0:0:1"));
  CHECK(!contains("fd00::7/64", "fd00:0:0:1::1"));
  CHECK(!contains("10.0.2.15/1", "fd00::1"));
}
