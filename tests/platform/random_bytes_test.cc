#include "platform/random_bytes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/syscall.h>

#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(RandomBytes){};

TEST(RandomBytes, AreAnotherTimeOthers) {
  std::byte bytes[2][32] = {};
  for (auto& each : bytes) CHECK(draw_bytes(each).ok());
  CHECK_FALSE(std::equal(std::begin(bytes[0]), std::end(bytes[0]), std::begin(bytes[1])));
  CHECK(draw_bytes({}).ok());
}

TEST(RandomBytes, AreRefusedWithTheCureWhereTheCallIsForbidden) {
  const test::Ended ended = test::run_forked([] {
    BP_PROBE_CHECK(test::forbid_call(SYS_getrandom, ENOSYS));
    std::byte bytes[8];
    const auto drawn = draw_bytes(bytes);
    BP_PROBE_CHECK(!drawn.ok());
    BP_PROBE_CHECK(std::strstr(drawn.error().cure, "forbids getrandom: allow it") != nullptr);
  });
  LONGS_EQUAL(0, ended.exit_code);
}
