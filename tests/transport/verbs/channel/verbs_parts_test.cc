// The parts that endpoints share: they fit together, and have the right owner.
#include "transport/verbs/channel/verbs_parts.h"

#include <thread>
#include <utility>
#include <vector>

#include "tests/support/death_test.h"
#include "transport/verbs/channel/verbs_endpoint.h"
#include "transport/verbs/channel/verbs_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(VerbsParts) {
  VerbsProvider provider;
  Dispatcher dispatcher;
  KeyTable keys;
  VerbsCounters counters;
  alignas(16) std::byte device[16];  // never read
  VerbsParts parts;
  std::vector<std::byte> memory = std::vector<std::byte>(2 * BounceBuffer::kPageBytes);

  void setup() override {
    parts.provider = &provider;
    parts.dispatcher = &dispatcher;
    parts.device = reinterpret_cast<VerbsDevice*>(device);
    parts.keys = &keys;
    parts.counters = &counters;
    parts.shape = {.peer_count_max = 2};
    parts.limits.am_bytes_max = parts.shape.message_bytes - uint32_t{sizeof(VerbsMessageHeader)};
    parts.instance = 1;
    parts.dirty.create(3);
    CHECK(parts.is_valid());
  }
  // Returns whether `parts` is valid with `value` in `field`. Restores the old value.
  template <typename T>
  bool is_valid_with(T & field, T value) {
    std::swap(field, value);
    const bool is_valid = parts.is_valid();
    field = value;
    return is_valid;
  }
};

TEST(VerbsParts, AllThatIsSetOnceIsThere) {
  CHECK_FALSE(is_valid_with<Provider*>(parts.provider, nullptr));
  CHECK_FALSE(is_valid_with<const Dispatcher*>(parts.dispatcher, nullptr));
  CHECK_FALSE(is_valid_with<VerbsDevice*>(parts.device, nullptr));
  CHECK_FALSE(is_valid_with<const KeyTable*>(parts.keys, nullptr));
  CHECK_FALSE(is_valid_with<VerbsCounters*>(parts.counters, nullptr));
  CHECK_FALSE(is_valid_with(parts.instance, uint64_t{0}));
  CHECK(parts.is_valid());
}

TEST(VerbsParts, MessagesAreAsLongAsTheShapeSays) {
  CHECK_FALSE(is_valid_with(parts.limits.am_bytes_max, parts.shape.message_bytes));
  CHECK_FALSE(is_valid_with(parts.shape.message_bytes, 256u));
}

TEST(VerbsParts, WhereWindowsAreUsedNoKeyOpensAllOfWhatIsLent) {
  parts.loan_bounce_key = 7;
  CHECK(parts.is_valid());
  CHECK_FALSE(is_valid_with(parts.uses_windows, true));
}

TEST(VerbsParts, NoMoreDrainOrAreDirtyThanThereAre) {
  CHECK(is_valid_with(parts.draining_count, 2u));
  CHECK_FALSE(is_valid_with(parts.draining_count, 3u));
  VerbsEndpoint a(parts), b(parts), c(parts);
  parts.dirty.add(a);
  parts.dirty.add(b);
  CHECK(parts.is_valid());
  parts.dirty.add(c);
  CHECK_FALSE(parts.is_valid());
}

#if BP_DEBUG
// The provider takes the same hold during its poll.
TEST(VerbsParts, WhileOneThreadPollsAllIsItsAlone) {
  VerbsEndpoint endpoint(parts);
  const RemoteMemory remote;
  const ibv_wc completion = {};
  test::Ended ended[13];
  const auto in_child = [&](int at, auto body) { ended[at] = test::run_forked(body); };
  const ThreadOwner::Hold hold(parts.owner);
  std::thread([&] {
    in_child(0, [&] { (void)endpoint.am_send(1, {}); });
    in_child(1, [&] { (void)endpoint.am_send_loan(1, {}, {}, nullptr); });
    in_child(2, [&] { (void)endpoint.get({}, remote, nullptr); });
    in_child(3, [&] { (void)endpoint.flush(nullptr); });
    in_child(4, [&] { (void)endpoint.expose({}); });
    in_child(5, [&] { endpoint.withdraw(remote); });
    in_child(6, [&] { (void)endpoint.has_room(); });
    in_child(7, [&] { (void)endpoint.send_datagram(1, {}); });
    in_child(8, [&] { endpoint.look_at_link(); });
    in_child(9, [&] { endpoint.receive({}, nullptr, 0); });
    in_child(10, [&] { endpoint.end_requests(completion); });
    in_child(11, [&] { endpoint.give_back({}); });
    in_child(12, [&] { (void)endpoint.settle(); });
  }).join();
  for (int i = 0; i < 13; ++i) {
    const char* words = i < 4 ? "was called on another thread" : "parts_.is_own_thread()";
    test::check_died(ended[i], words, __FILE__, __LINE__);
  }
  LONGS_EQUAL(static_cast<int>(SendStatus::kAgain), static_cast<int>(endpoint.am_send(1, {})));
}
#endif
