// A ring that holds pages: the error if there can be no ring. tests/transport/no_way_back_test.cc
// shows that the pages stay.
#include "transport/uring/page_pin.h"

#include <cerrno>

#include <sys/syscall.h>

#include "platform/units.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/support/pool_fixture.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(PagePin){};

// The cure names no other sockets: they have nothing to do with it.
TEST(PagePin, IfTheLimitOfLockedMemoryIsTooLowTheCureRaisesIt) {
  io_uring ring = {};
  if (io_uring_queue_init(1, &ring, 0) != 0) BP_SKIP("io_uring is not available here");
  io_uring_queue_exit(&ring);
  const int outcome = test::exit_code_of([] {
    if (!test::forbid_call(SYS_io_uring_register, ENOMEM)) return 99;
    test::TestPool pool;
    PagePin pin;
    const auto created = pin.create(*pool);
    return !created.ok() && std::string_view(created.error().cure) ==
                                "raise the limit of locked memory (ulimit -l unlimited)"
               ? 0
               : 1;
  });
  LONGS_EQUAL(0, outcome);
}

TEST(PagePin, WithoutIoUringTheReasonIsSaid) {
  const int outcome = test::exit_code_of([] {
    if (!test::answer_calls(SYS_io_uring_setup, [](const uint64_t*) { return -long{EPERM}; })) {
      return 99;
    }
    test::TestPool pool;
    PagePin pin;
    const auto created = pin.create(*pool);
    char text[512];
    return !created.ok() && std::string_view(format_error(created.error(), text, sizeof text)) ==
                                "setting up a ring that holds the pool's pages: Operation not "
                                "permitted"
               ? 0
               : 1;
  });
  LONGS_EQUAL(0, outcome);
}
