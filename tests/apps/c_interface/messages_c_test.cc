// The C interface to messages (apps/c_interface/messages_c.h) without a pool to join: its errors,
// and their texts (apps/c_interface/error_c.h). This file is also valid C, like bedplate_c_test.cc.
// System tests use the interface with peers: the example in C, and tests/system/c_peer.c.
#include "apps/c_interface/bedplate.h"

#include <string.h>

#include "unity_fixture.h"

TEST_GROUP(CMessages);

TEST_SETUP(CMessages) {}

TEST_TEAR_DOWN(CMessages) {}

static int error_has(const char* part) { return strstr(bp_error_text(), part) != NULL; }

TEST(CMessages, SaysThatNoOwnerListens) {
  TEST_ASSERT_EQUAL_INT(-1, bp_join("/nowhere/two.join", "ann", 1, 1));
  TEST_ASSERT_TRUE(error_has("connecting to the owner of the pool at /nowhere/two.join: "));
  TEST_ASSERT_TRUE(error_has("; start the owner of the pool, or name the socket that it has"));
}

TEST(CMessages, HasTheThreePartsOfAnError) {
  TEST_ASSERT_EQUAL_INT(-1, bp_join("/nowhere/two.join", "ann", 1, 1));
  TEST_ASSERT_EQUAL_STRING("connecting to the owner of the pool at /nowhere/two.join",
                           bp_error_doing());
  TEST_ASSERT_EQUAL_STRING("No such file or directory", bp_error_answer());
  TEST_ASSERT_EQUAL_STRING("start the owner of the pool, or name the socket that it has: "
                           "[messages] socket, or NAME.join in its runtime directory",
                           bp_error_cure());
}

TEST(CMessages, SaysThatANameIsTooLong) {
  TEST_ASSERT_EQUAL_INT(-1, bp_join("/nowhere", "a-name-of-thirty-two-characters-", 1, 1));
  TEST_ASSERT_TRUE(error_has("the name has 32 bytes; choose one of at most 31"));
}

TEST(CMessages, NamesEveryStatus) {
  TEST_ASSERT_EQUAL_STRING("done", bp_status_text(BP_DONE));
  TEST_ASSERT_EQUAL_STRING("pending", bp_status_text(BP_PENDING));
  TEST_ASSERT_EQUAL_STRING("again", bp_status_text(BP_AGAIN));
  TEST_ASSERT_EQUAL_STRING("gone", bp_status_text(BP_GONE));
  TEST_ASSERT_EQUAL_STRING("too long", bp_status_text(BP_TOO_LONG));
  TEST_ASSERT_EQUAL_STRING("refused", bp_status_text(BP_REFUSED));
}
