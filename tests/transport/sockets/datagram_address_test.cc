#include "transport/sockets/datagram_address.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(DatagramAddress){};

TEST(DatagramAddress, IsReadAndWritten) {
  for (const char* text : {"192.0.2.1:5004", "[2001:db8::1]:1", "0.0.0.0:0", "[::]:65535"}) {
    STRCMP_EQUAL(text, parse_datagram_address(text).take().text().c_str());
  }
  for (const char* bad : {"", "192.0.2.1", "192.0.2.1:", "192.0.2.1:65536", "[192.0.2.1]:1",
                          "2001:db8::1:1", "localhost:1", "1.2.3:4", "[::1:4"}) {
    auto refused = parse_datagram_address(bad);
    CHECK_TEXT(!refused.ok(), bad);
    STRCMP_CONTAINS("[...] around IPv6", refused.error().cure);
  }
}
