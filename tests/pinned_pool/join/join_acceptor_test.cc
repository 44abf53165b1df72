// The owner's listening socket: what accept() reports.
#include "pinned_pool/join/join_acceptor.h"

#include <cerrno>
#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;
using Outcome = JoinAcceptor::Outcome;

TEST_GROUP(JoinAcceptor) {
  JoinWatch watch;
  JoinAcceptor acceptor{watch};
  Fd socket;
  const std::string path = "/tmp/bedplate-acceptor-" + std::to_string(getpid()) + ".sock";

  void setup() override {
    CHECK(watch.open(1).ok());
    CHECK(acceptor.open(nullptr, path).ok());
    CHECK(acceptor.begin());
  }
  void teardown() override { unlink(path.c_str()); }

  Fd connect() { return connect_to_owner(path.c_str(), monotonic_ns() + test::kPatienceNs).take(); }
};

TEST(JoinAcceptor, AcceptsWhatWaitsAndThenNothing) {
  CHECK(acceptor.accept(&socket) == Outcome::kNone);
  const Fd joiner = connect();
  CHECK(acceptor.accept(&socket) == Outcome::kAccepted);
  CHECK(socket.is_open());
  CHECK(acceptor.accept(&socket) == Outcome::kNone);
}

// Otherwise the control thread would spin, and say nothing.
TEST(JoinAcceptor, AnErrorThatLastsIsAFailureAndNotAnEmptySocket) {
  const Fd deaf(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));  // does not listen
  const int listener = acceptor.listener().number();
  LONGS_EQUAL(listener, dup3(deaf.number(), listener, O_CLOEXEC));
  CHECK(acceptor.accept(&socket) == Outcome::kFailed);
  LONGS_EQUAL(EINVAL, errno);
}
