// What endpoints share, and whether it fits together.
#include "transport/verbs/channel/verbs_parts.h"

#include <utility>
#include <vector>

#include "transport/verbs/channel/verbs_endpoint.h"
#include "transport/verbs/channel/verbs_provider.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(VerbsParts) {
  VerbsProvider provider;
  Dispatcher dispatcher;
  KeyTable keys;
  VerbsCounters counters;
  alignas(16) std::byte device[16];  // nobody looks into it
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
  // Whether it stays valid with `value` in `place`, which has what it had afterwards.
  template <typename T>
  bool is_valid_with(T & place, T value) {
    std::swap(place, value);
    const bool is_valid = parts.is_valid();
    place = value;
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
