// The control methods that every appliance has, without an appliance: the drain of services.
#include "apps/control/runtime_methods.h"

#include <memory>
#include <string>
#include <vector>

#include "apps/control/control_session.h"
#include "apps/services/service.h"
#include "apps/services/service_drains.h"
#include "apps/testing/session_peer.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Named final : Service {
  Named(const char* its_name, bool is_alone) : own_name(its_name), is_its_own(is_alone) {}
  const char* name() const noexcept override { return own_name; }
  void request_drain() noexcept override { ++asked_count; }
  bool drains_alone() const noexcept override { return is_its_own; }

  const char* own_name;
  bool is_its_own;
  int asked_count = 0;
};

}  // namespace

TEST_GROUP(RuntimeMethods) {
  Named cache{"cache", true};
  Named init{"init", false};
  std::vector<Service*> services = {&cache, &init};
  ServiceDrains drains;
  ControlMethods methods;
  RuntimeMethods runtime;
  EventLoop loop;
  ControlCounters counters;
  ControlSite site;
  std::unique_ptr<ControlSession> session;

  void setup() override {
    drains.create(services);
    runtime.drains = &drains;
    runtime.add_to(&methods);
    site.methods = &methods;
    site.counters = &counters;
    CHECK(loop.create({}).ok());
    site.own_loop = &loop;
    session = std::make_unique<ControlSession>(site);
  }
  std::string drained(const std::string& service) {
    return testing::SessionPeer(*session).say(
        R"({"jsonrpc":"2.0","id":1,"method":"drain","params":{"service":")" + service + "\"}}\n");
  }
};

TEST(RuntimeMethods, WhatIsTheMachinesIsRefusedToDrainAlone) {
  STRCMP_EQUAL(
      R"({"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"draining init: it )"
      R"(belongs to the machine, and drains when the appliance ends; end the appliance (SIGTERM), )"
      R"(or drain another service"}})"
      "\n",
      drained("init").c_str());
  drains.turn();
  LONGS_EQUAL(0, init.asked_count);
  CHECK(drains.state_of(1) == ServiceDrains::State::kServing);
}

TEST(RuntimeMethods, AServiceThatDrainsIsAskedAtTheNextTurn) {
  STRCMP_CONTAINS(R"("result":{"service":"cache","state":"wished"})", drained("cache").c_str());
  LONGS_EQUAL(0, cache.asked_count);
  drains.turn();
  LONGS_EQUAL(1, cache.asked_count);
  STRCMP_CONTAINS("no service of this name runs", drained("none").c_str());
}
