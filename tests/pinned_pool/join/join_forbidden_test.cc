// A server of joins (pinned_pool/join/join_server.h) under a seccomp profile.
#include <cerrno>
#include <cstring>

#include <sys/syscall.h>

#include "tests/pinned_pool/join/join_rig.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"

using namespace bedplate;
using bedplate::test::JoinRig;

TEST_GROUP(JoinForbidden){};

// start() reports the calls that a seccomp profile forbids to the server's thread. The server then
// ends as usual.
BP_PROBE(JoinServerWithoutRobustLists) {
  JoinRig own;
  own.create_server();
  BP_PROBE_CHECK(test::forbid_call(SYS_set_robust_list, EPERM));
  const auto started = own.server->start();
  BP_PROBE_CHECK(!started.ok());
  BP_PROBE_CHECK(std::strstr(started.error().cure, "forbids set_robust_list") != nullptr);
}
TEST(JoinForbidden, AServerThatMayNotSayThatItLivesIsRefused) {
  BP_CHECK_PROBE(JoinServerWithoutRobustLists);
}

BP_PROBE(JoinServerWithoutEpollWait) {
  JoinRig own;
  BP_PROBE_CHECK(test::forbid_call(SYS_epoll_wait, EPERM));
  const auto created = JoinServer::create(own.options);
  BP_PROBE_CHECK(!created.ok());
  BP_PROBE_CHECK(std::strstr(created.error().cure, "epoll_wait: allow it") != nullptr);
}
TEST(JoinForbidden, AServerThatMayNotWaitIsRefused) { BP_CHECK_PROBE(JoinServerWithoutEpollWait); }
