// ServiceDrains asks each service to drain once, on a wish or at the end, and logs it.
#include "apps/services/service_drains.h"

#include <string>
#include <vector>

#include "apps/services/service.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using State = ServiceDrains::State;

namespace {

struct Draining final : Service {
  explicit Draining(const char* its_name) : own_name(its_name) {}
  const char* name() const noexcept override { return own_name; }
  void request_drain() noexcept override { ++asked_count; }
  bool is_drained() const noexcept override { return has_finished; }
  bool drains_alone() const noexcept override { return is_its_own; }

  const char* own_name;
  int asked_count = 0;
  bool has_finished = false;
  bool is_its_own = true;
};

}  // namespace

TEST_GROUP(ServiceDrains) {
  Draining cache{"cache"};
  Draining relay{"relay"};
  std::vector<Service*> services = {&cache, &relay};
  ServiceDrains drains;

  void setup() override { drains.create(services); }
  // Makes one turn. Returns its log.
  std::string turn() {
    test::StderrCapture capture;
    drains.turn();
    return capture.finish();
  }
  void expect_states(State of_cache, State of_relay) {
    STRCMP_EQUAL(to_text(of_cache), to_text(drains.state_of(0)));
    STRCMP_EQUAL(to_text(of_relay), to_text(drains.state_of(1)));
  }
};

TEST(ServiceDrains, WhatIsTheMachinesDrainsWithTheAppliance) {
  relay.is_its_own = false;
  CHECK(drains.drains_alone(0));
  CHECK_FALSE(drains.drains_alone(1));
  drains.begin_all();
  LONGS_EQUAL(1, relay.asked_count);
}

TEST(ServiceDrains, OneIsAskedAtTheNextTurnAndOnce) {
  LONGS_EQUAL(1, *drains.find("relay"));
  CHECK_FALSE(drains.find("rela").has_value());
  STRCMP_EQUAL("", turn().c_str());
  drains.wish(1);
  expect_states(State::kServing, State::kWished);
  LONGS_EQUAL(0, relay.asked_count);
  STRCMP_EQUAL("bedplate: relay: draining on request; it serves again after a restart\n",
               turn().c_str());
  expect_states(State::kServing, State::kDraining);
  drains.wish(1);
  turn();
  expect_states(State::kServing, State::kDraining);
  LONGS_EQUAL(1, relay.asked_count);
  LONGS_EQUAL(0, cache.asked_count);
  relay.has_finished = true;
  STRCMP_EQUAL("bedplate: relay: drained\n", turn().c_str());
  expect_states(State::kServing, State::kDrained);
  STRCMP_EQUAL("", turn().c_str());
}

TEST(ServiceDrains, AtTheEndThoseAreAskedThatWereNot) {
  drains.wish(0);
  turn();
  drains.begin_all();
  LONGS_EQUAL(1, cache.asked_count);
  LONGS_EQUAL(1, relay.asked_count);
  STRCMP_EQUAL("cache, relay", drains.undrained().c_str());
  cache.has_finished = true;
  STRCMP_EQUAL("relay", drains.undrained().c_str());
  relay.has_finished = true;
  STRCMP_EQUAL("", drains.undrained().c_str());
}

TEST(ServiceDrains, AWishThatCameTooLateIsDoneAtTheEnd) {
  drains.wish(0);
  drains.begin_all();
  LONGS_EQUAL(1, cache.asked_count);
  expect_states(State::kDraining, State::kDraining);
}
