// The groups that sockets join, and the groups that the link joins for them.
#include "transport/dpdk/net/memberships_datapath.h"

#include <cerrno>
#include <string>

#include "tests/support/seed.h"
#include "tests/transport/dpdk/net/frames.h"

#include <CppUTest/TestHarness.h>

using namespace bedplate;
using frames::ip;

TEST_GROUP(Memberships) {
  ::bedplate::Memberships memberships{32};
  ::bedplate::Memberships::Holder a = ::bedplate::Memberships::kNone;
  ::bedplate::Memberships::Holder b = ::bedplate::Memberships::kNone;
  int error_number = 0;

  LinkGroup* join(uint32_t & holder, const std::string& group, const std::string& source = "") {
    return memberships.join(holder, ip(group), source.empty() ? IpAddress{} : ip(source),
                            error_number);
  }
  LinkGroup* leave(uint32_t & holder, const std::string& group, const std::string& source = "") {
    LinkGroup* its = memberships.leave(holder, ip(group), source.empty() ? IpAddress{} : ip(source),
                                       error_number);
    if (its != nullptr && !its->is_joined()) memberships.forget_if_left(*its);
    return its;
  }
};

TEST(Memberships, AddUpOverSockets) {
  LinkGroup* group = join(a, "232.1.1.1", "192.0.2.8");
  CHECK(group != nullptr && !group->wants_all());
  POINTERS_EQUAL(group, join(b, "232.1.1.1", "192.0.2.9"));
  POINTERS_EQUAL(group, join(b, "232.1.1.1", "192.0.2.8"));
  IpAddress sources[::bedplate::Memberships::kSourceCountMax];
  LONGS_EQUAL(2, memberships.sources(*group, sources));
  CHECK(memberships.accepts(a, ip("232.1.1.1"), ip("192.0.2.8")));
  CHECK(!memberships.accepts(a, ip("232.1.1.1"), ip("192.0.2.9")));
  CHECK(memberships.accepts(b, ip("232.1.1.1"), ip("192.0.2.9")));
  join(a, "232.1.1.1");
  CHECK(group->wants_all());
  CHECK(memberships.accepts(a, ip("232.1.1.1"), ip("192.0.2.77")));
  leave(a, "232.1.1.1");
  CHECK(!group->wants_all() && group->is_joined());
  while (memberships.leave_any(b) != nullptr) {
  }
  LONGS_EQUAL(1, memberships.sources(*group, sources));
  leave(a, "232.1.1.1", "192.0.2.8");
  CHECK(!group->is_used());
  CHECK(memberships.is_valid());
}

TEST(Memberships, RefusalsSayWhy) {
  POINTERS_EQUAL(nullptr, join(a, "192.0.2.1"));
  LONGS_EQUAL(EINVAL, error_number);
  POINTERS_EQUAL(nullptr, join(a, "232.1.1.1", "2001:db8::1"));
  LONGS_EQUAL(EINVAL, error_number);
  POINTERS_EQUAL(nullptr, join(a, "232.1.1.1", "239.1.1.1"));
  LONGS_EQUAL(EINVAL, error_number);
  POINTERS_EQUAL(nullptr, leave(a, "232.1.1.1"));
  LONGS_EQUAL(EADDRNOTAVAIL, error_number);
  CHECK(join(a, "232.1.1.1") != nullptr);
  POINTERS_EQUAL(nullptr, join(a, "232.1.1.1"));
  LONGS_EQUAL(EADDRINUSE, error_number);
  for (int i = 0; i < 31; ++i) CHECK(join(b, "232.2.1." + std::to_string(i)) != nullptr);
  POINTERS_EQUAL(nullptr, join(b, "232.3.1.1"));
  LONGS_EQUAL(ENOBUFS, error_number);
  CHECK(memberships.is_valid());
}

TEST(Memberships, AGroupHasNoMoreSourcesThanAReportHolds) {
  constexpr uint32_t kMost = ::bedplate::Memberships::kSourceCountMax;
  ::bedplate::Memberships many{2 * kMost};
  const auto join_source = [&](uint32_t number) {
    return many.join(a, ip("232.1.1.1"), ip("192.0.2." + std::to_string(number)), error_number);
  };
  LinkGroup* group = many.join(b, ip("232.1.1.1"), {}, error_number);
  CHECK(group != nullptr && group->wants_all());
  for (uint32_t i = 0; i < kMost; ++i) CHECK(join_source(i) != nullptr);
  POINTERS_EQUAL(nullptr, join_source(kMost));
  LONGS_EQUAL(ENOBUFS, error_number);
  POINTERS_EQUAL(group, many.leave(b, ip("232.1.1.1"), {}, error_number));
  IpAddress sources[kMost];
  LONGS_EQUAL(kMost, many.sources(*group, sources));
  CHECK(many.is_valid());
}

TEST(Memberships, ByChance) {
  const test::Seed seed;
  uint64_t random = seed.value() | 1;
  const auto next = [&](uint32_t limit) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(random >> 33) % limit;
  };
  for (int i = 0; i < 5000; ++i) {
    uint32_t& holder = next(2) != 0 ? a : b;
    const std::string group = "232.1.1." + std::to_string(next(6));
    const std::string source = next(2) != 0 ? "" : "192.0.2." + std::to_string(next(4));
    if (next(2) != 0) {
      join(holder, group, source);
    } else {
      leave(holder, group, source);
    }
    CHECK_TEXT(memberships.is_valid(), seed.text());
  }
}
