// Networks of [[network]], in a child whose network has only a loopback device.
#include "apps/init/network.h"

#include <sched.h>
#include <unistd.h>

#include "platform/log.h"
#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr int kNoNetwork = 100;

NetworkSettings loopback_with(const char* address, const char* gateway = "", uint32_t mtu = 0) {
  NetworkSettings network;
  network.interface = "lo";
  network.address = address;
  network.gateway = gateway;
  network.mtu = mtu;
  return network;
}

// Brings the networks up in a child. Its log ends with the error, if there is one.
test::Ended bring_up_apart(const std::vector<NetworkSettings>& networks) {
  return test::run_forked([&] {
    if (unshare(CLONE_NEWNET) != 0) _exit(kNoNetwork);
    const auto brought = bring_networks_up(networks);
    if (!brought.ok()) log_error(brought.error());
    _exit(brought.ok() ? 0 : 1);
  });
}

}  // namespace

TEST_GROUP(Network){void said(const test::Ended& ended, const char* text){
    if (ended.exit_code == kNoNetwork) BP_SKIP("this user may not make a network namespace");
STRCMP_CONTAINS(text, ended.text);
}
}
;

TEST(Network, LoopbackAloneIsBroughtUp) {
  const test::Ended ended = bring_up_apart({});
  said(ended, "");
  LONGS_EQUAL(0, ended.exit_code);
}

TEST(Network, EachIsSaidAsItIs) {
  said(bring_up_apart({loopback_with("10.9.8.7/24", "10.9.8.1", 1400)}),
       "lo: up, 10.9.8.7/24, gateway 10.9.8.1");
  said(bring_up_apart({loopback_with("")}), "lo: up, no address");
}

TEST(Network, AnInterfaceThatNeverComesIsSaidWithThoseThatAreThere) {
  NetworkSettings network = loopback_with("10.9.8.7/24");
  network.interface = "eth7";
  network.driver = "e1000e";
  said(bring_up_apart({network}),
       "looking for the interface eth7: it does not exist; there are: lo; correct interface or "
       "driver (now e1000e) in [[network]]");
}

TEST(Network, WhatTheKernelRefusesHasItsCure) {
  const NetworkSettings one = loopback_with("10.9.8.7/24");
  said(bring_up_apart({one, one}), "setting the address 10.9.8.7/24 of the interface lo: File "
                                   "exists; give each [[network]] an address, and a gateway");
  said(bring_up_apart({loopback_with("10.9.8.7/24", "10.1.1.1")}),
       "setting the gateway 10.1.1.1 of the interface lo: Network is unreachable; name a gateway "
       "that lies in the address's network");
  said(bring_up_apart({loopback_with("ff02::1/64")}),
       "Cannot assign requested address; set an address in [[network]] that an interface may have");
  said(bring_up_apart({loopback_with("", "", UINT32_MAX)}),
       "of the interface lo: Invalid argument; set an mtu in [[network]] that the device accepts");
}
