// The watch reports changes in a child's own network, and finds the present numbers of interfaces.
#include "transport/sockets/network_watch.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Returns 0, or the number of the step that failed.
int run_steps() {
  if (unshare(CLONE_NEWNET) != 0) return 100;
  NetlinkSocket kernel;
  NetworkWatch watch;
  if (!kernel.create().ok() || !watch.create().ok()) return 1;
  if (watch.has_changed()) return 2;
  const uint32_t lo = if_nametoindex("lo");
  if (watch.index_of("lo") != lo || !watch.is_there(lo)) return 3;
  if (watch.index_of("nosuch0") != 0 || watch.index_of("a-name-that-is-too-long") != 0) return 4;
  if (watch.is_there(4711)) return 5;
  const IpAddress address = *parse_ip_address("10.9.8.1");
  if (watch.index_toward(address) != 0) return 6;
  NetlinkMessage up = link_up_message(lo, 0);
  if (kernel.request(up) != 0 || !watch.has_changed()) return 7;
  NetlinkMessage four = address_message(lo, *parse_ip_prefix("10.9.8.7/24"));
  if (kernel.request(four) != 0 || !watch.has_changed()) return 8;
  if (watch.index_toward(address) != lo) return 9;
  NetlinkMessage six = address_message(lo, *parse_ip_prefix("fd00::7/64"));
  if (kernel.request(six) != 0 || !watch.has_changed()) return 10;
  if (watch.index_toward(*parse_ip_address("fd00::9")) != lo) return 11;
  NetlinkMessage route = default_route_message(lo, *parse_ip_address("10.9.8.1"));
  if (kernel.request(route) != 0 || !watch.has_changed()) return 12;
  return watch.index_toward(*parse_ip_address("239.1.1.1")) == lo ? 0 : 13;
}

// More events than the watch's socket holds are one change. Afterwards the watch reports the next.
int run_flood() {
  if (unshare(CLONE_NEWNET) != 0) return 100;
  NetlinkSocket kernel;
  NetworkWatch watch;
  if (!kernel.create().ok() || !watch.create().ok()) return 1;
  const uint32_t lo = if_nametoindex("lo");
  for (uint32_t i = 0; i < 3000; ++i) {
    NetlinkMessage mtu = link_up_message(lo, 1400 + i % 2);
    if (kernel.request(mtu) != 0) return 2;
  }
  if (!watch.has_changed()) return 3;
  if (watch.has_changed()) return 4;
  NetlinkMessage mtu = link_up_message(lo, 1300);
  return kernel.request(mtu) == 0 && watch.has_changed() ? 0 : 5;
}

void expect_steps_in_child(int (*steps)()) {
  const pid_t child = fork();
  if (child == 0) _exit(steps());
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == 100) BP_SKIP("this user may not make a network namespace");
  LONGS_EQUAL(0, WEXITSTATUS(status));
}

}  // namespace

TEST_GROUP(NetworkWatch){};

TEST(NetworkWatch, TellsWhatChanges) { expect_steps_in_child(&run_steps); }

TEST(NetworkWatch, WhatItCannotHoldIsAChange) { expect_steps_in_child(&run_flood); }

TEST(NetworkWatch, WithoutTheKernelsWordAnythingMayHaveChanged) {
  NetworkWatch watch;
  CHECK(watch.has_changed());
  LONGS_EQUAL(0, watch.index_toward(*parse_ip_address("127.0.0.1")));
}
