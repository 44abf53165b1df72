// The shapes that are allowed, and the sizes that follow from a shape.
#include "transport/verbs/channel/verbs_shape.h"

#include <bit>
#include <initializer_list>
#include <string>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

void check_refused(const VerbsShape& shape, const char* answer, const char* cure) {
  const auto checked = check_shape(shape);
  CHECK_FALSE(checked.ok());
  STRCMP_EQUAL(answer, checked.error().answer);
  STRCMP_EQUAL(cure, checked.error().cure);
}

}  // namespace

TEST_GROUP(VerbsShape){};

TEST(VerbsShape, ThoseThatCannotBeAreRefusedWithWhatCan) {
  CHECK(check_shape({}).ok());
  CHECK(check_shape({.peer_count_max = 1,
                     .window = 2,
                     .message_bytes = 256,
                     .operation_count_max = 1,
                     .bounce_bytes = 0})
            .ok());
  for (const uint16_t window : std::initializer_list<uint16_t>{0, 1, 3, 63, 32768}) {
    CHECK_FALSE(check_shape({.window = window}).ok());
  }
  for (const uint32_t bytes : {0u, 192u, 4095u, 4100u}) {
    CHECK_FALSE(check_shape({.message_bytes = bytes}).ok());
  }
  CHECK_FALSE(check_shape({.peer_count_max = 0}).ok());
  CHECK_FALSE(check_shape({.operation_count_max = 0}).ok());
  check_refused({.window = 65},
                "65 messages in a window: powers of two from 2 to 16384 are possible",
                "choose one of these, such as 64");
  check_refused({.peer_count_max = 2000}, "2000 peers: numbers from 1 to 1024 are possible",
                "choose one of these, such as 8");
  for (const uint32_t count : {1u, 2u}) {
    check_refused(
        {.datagram_count = count},
        (std::to_string(count) + " datagrams: 0, and powers of two from 4 to 4096 are possible")
            .c_str(),
        "choose one of these, such as 64");
  }
}

TEST(VerbsShape, QueuesAreAsLongAsWhatMayBeInFlight) {
  for (const uint16_t window : std::initializer_list<uint16_t>{2, 64, 1024}) {
    for (const uint32_t operations : {1u, 63u, 64u, 1000u}) {
      const VerbsShape shape = {
          .peer_count_max = 3, .window = window, .operation_count_max = operations};
      // Also: acknowledgements, the marker of a connection's end, and a kick.
      CHECK(shape.request_count() >= window + operations + kAcknowledgementsMax + 2);
      CHECK(std::has_single_bit(shape.request_count()));
      LONGS_EQUAL(3 * (window + kAcknowledgementsMax) + kCompletionBatch, shape.receive_count());
      LONGS_EQUAL(shape.receive_count() + 3 * shape.request_count(), shape.completion_count());
    }
  }
}

TEST(VerbsShape, MemoryIsInPagesAndHoldsAllParts) {
  const VerbsShape shape = {
      .peer_count_max = 3, .message_bytes = 320, .bounce_bytes = 5000, .datagram_count = 8};
  LONGS_EQUAL(8192, shape.bounce_page_bytes());
  LONGS_EQUAL(0, shape.peer_memory_bytes() % 64);
  CHECK(shape.peer_memory_bytes() >= 64 * 320 + 8ull * shape.request_count());
  LONGS_EQUAL(0, shape.private_bytes() % VerbsShape::kPageBytes);
  CHECK(shape.private_bytes() >=
        shape.receive_count() * 320ull + 3 * shape.peer_memory_bytes() + shape.bounce_page_bytes());
  LONGS_EQUAL(VerbsShape::kPageBytes + 8192, verbs_shared_bytes(shape));
  LONGS_EQUAL(shape.private_bytes() + verbs_shared_bytes(shape), verbs_memory_bytes(shape));
}
