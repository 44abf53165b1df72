// The endpoints that have something to post: each is posted once, and none is left.
#include "transport/verbs/channel/dirty_list_datapath.h"

#include <vector>

#include "tests/support/death_test.h"
#include "transport/verbs/channel/verbs_endpoint.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(DirtyList) {
  VerbsParts parts;
  VerbsEndpoint a{parts}, b{parts}, c{parts};
  DirtyList list;
  std::vector<VerbsEndpoint*> posted;

  void setup() override { list.create(2); }
  void post() {
    list.post_all([this](VerbsEndpoint& endpoint) noexcept { posted.push_back(&endpoint); });
  }
};

TEST(DirtyList, PostsEachOnceInItsOrder) {
  post();
  CHECK(posted.empty());
  list.add(b);
  list.add(a);
  CHECK(list.holds(a) && list.holds(b) && !list.holds(c));
  LONGS_EQUAL(2, list.all().size());
  CHECK(list.is_valid());
  post();
  CHECK(posted == (std::vector<VerbsEndpoint*>{&b, &a}));
  CHECK(list.all().empty() && !list.holds(a));
  list.add(a);
  post();
  CHECK(posted == (std::vector<VerbsEndpoint*>{&b, &a, &a}));
}

TEST(DirtyList, WhatIsAddedMeanwhileIsPostedToo) {
  list.add(a);
  list.post_all([this](VerbsEndpoint& endpoint) noexcept {
    posted.push_back(&endpoint);
    if (&endpoint == &a) list.add(b);
  });
  CHECK(posted == (std::vector<VerbsEndpoint*>{&a, &b}));
  CHECK(list.all().empty());
}

#if BP_DEBUG
TEST(DirtyList, NoneIsThereTwiceOrOneTooMany) {
  list.add(a);
  BP_CHECK_DIES("!holds(endpoint)", list.add(a));
  list.add(b);
  BP_CHECK_DIES("count_ < endpoints_.size()", list.add(c));
}
#endif
