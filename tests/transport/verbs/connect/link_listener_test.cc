// A listening socket that pauses while descriptors are short.
#include "transport/verbs/connect/link_listener.h"

#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(LinkListener){};

TEST(LinkListener, OneThatPausedMayBeClosed) {
  const std::string path = "/tmp/bedplate-listener-" + std::to_string(getpid()) + ".sock";
  auto address = parse_socket_address("unix:" + path);
  CHECK(address.ok());
  LinkEvents events;
  CHECK(events.open());
  LinkListener listener(events);
  CHECK(listener.open(address.value()).ok());
  CHECK(listener.watch());
  const Fd caller = start_connecting(address.value()).take();
  CHECK(caller.is_open());

  rlimit limit = {};
  LONGS_EQUAL(0, getrlimit(RLIMIT_NOFILE, &limit));
  const rlimit none = {0, limit.rlim_max};
  LONGS_EQUAL(0, setrlimit(RLIMIT_NOFILE, &none));
  const Fd accepted = listener.accept();
  LONGS_EQUAL(0, setrlimit(RLIMIT_NOFILE, &limit));

  CHECK_FALSE(accepted.is_open());
  CHECK(listener.is_paused() && listener.is_valid());
  listener.close();
  CHECK(listener.is_valid());
  CHECK_FALSE(listener.is_paused());
  unlink(path.c_str());
}
