// Listening sockets: opened, taken over from the service manager, and removed with their files.
#include "apps/services/listeners.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

SocketAddress unix_address(const std::string& path) {
  SocketAddress address;
  address.kind = SocketAddress::Kind::kUnix;
  address.path = path;
  return address;
}
SocketAddress tcp_address(uint16_t port) {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}
SocketAddress activation() {
  SocketAddress address;
  address.kind = SocketAddress::Kind::kActivation;
  return address;
}

bool is_listening(int fd) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &bytes) == 0 && value == 1;
}

}  // namespace

TEST_GROUP(Listeners) {
  static constexpr int kFirst = 3;  // the first descriptor that a service manager passes
  static constexpr int kCount = 2;

  char root[64] = "/tmp/bedplate-listeners-XXXXXX";
  std::vector<Error> problems;
  int saved[kCount] = {-1, -1};

  void setup() override { CHECK(mkdtemp(root) != nullptr); }
  void teardown() override {
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    for (int i = 0; i < kCount; ++i) {
      if (saved[i] < 0) continue;
      dup3(saved[i], kFirst + i, O_CLOEXEC);
      close(saved[i]);
    }
    LONGS_EQUAL(0, rmdir(root));  // no socket file is left
  }

  std::string path(const char* name) { return std::string(root) + "/" + name; }

  // Passes `fd` as the manager would. Saves the descriptor that has its number.
  void pass(int index, int fd) {
    saved[index] = fcntl(kFirst + index, F_DUPFD_CLOEXEC, 100);
    dup2(fd, kFirst + index);
  }
  void announce(long pid, const char* count) {
    setenv("LISTEN_PID", std::to_string(pid).c_str(), 1);
    setenv("LISTEN_FDS", count, 1);
  }
  Fd listening() {
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    listen(fd.number(), 4);
    return fd;
  }
  void check_refused(const char* answer) {
    Listeners listeners("listen in [here]");
    listeners.open({activation()}, &problems);
    LONGS_EQUAL(1, problems.size());
    STRCMP_EQUAL("taking over activated sockets", problems[0].doing);
    STRCMP_EQUAL(answer, problems[0].answer);
    CHECK(std::strstr(problems[0].cure, "activation:") != nullptr);
    problems.clear();
  }
};

TEST(Listeners, OpensEveryAddressAndRemovesItsFiles) {
  {
    Listeners listeners("listen in [here]");
    listeners.open({unix_address(path("a.sock")), tcp_address(0), unix_address(path("b.sock"))},
                   &problems);
    LONGS_EQUAL(0, problems.size());
    LONGS_EQUAL(3, listeners.sockets().size());
    for (const Fd& each : listeners.sockets()) {
      CHECK(is_listening(each.number()));
      CHECK((fcntl(each.number(), F_GETFD) & FD_CLOEXEC) != 0);
    }
    CHECK(access(path("a.sock").c_str(), F_OK) == 0);
  }
  CHECK(access(path("a.sock").c_str(), F_OK) != 0);
  CHECK(access(path("b.sock").c_str(), F_OK) != 0);
}

TEST(Listeners, EachPlaceHasASocketAtATcpAddressAndTheFirstHasTheOthers) {
  Listeners listeners("listen in [here]", {}, {}, 3);
  listeners.open({unix_address(path("a.sock")), tcp_address(0), tcp_address(0)}, &problems);
  LONGS_EQUAL(0, problems.size());
  LONGS_EQUAL(3, listeners.sockets(0).size());
  LONGS_EQUAL(2, listeners.sockets(1).size());
  LONGS_EQUAL(2, listeners.sockets(2).size());
  for (size_t place = 0; place < 3; ++place) {
    for (const Fd& each : listeners.sockets(place)) CHECK(is_listening(each.number()));
  }
  CHECK(listeners.is_valid());
}

TEST(Listeners, APortThatAnotherProgramSharesIsInUse) {
  Listeners first("listen in [here]", {}, {}, 2);
  first.open({tcp_address(0)}, &problems);
  sockaddr_in bound = {};
  socklen_t bytes = sizeof bound;
  const int fd = first.sockets(1)[0].number();
  LONGS_EQUAL(0, getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &bytes));
  Listeners second("listen in [here]", {}, {}, 2);
  second.open({tcp_address(ntohs(bound.sin_port))}, &problems);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("Address already in use", problems[0].answer);
  LONGS_EQUAL(0, second.sockets(0).size());
}

TEST(Listeners, OpeningTwiceIsAProgrammingError) {
  Listeners listeners("listen");
  listeners.open({tcp_address(0)}, &problems);
  CHECK(listeners.is_valid());
  BP_CHECK_DIES("assertion failed: sockets_.empty() && paths_.empty()",
                listeners.open({tcp_address(0)}, &problems));
}

// Users have a reference to the sockets, and could corrupt them.
TEST(Listeners, ASocketThatIsNotTheirsAloneOrClosedIsAProgrammingError) {
  Listeners listeners("listen");
  listeners.open({tcp_address(0), unix_address(path("a.sock"))}, &problems);
  auto& sockets = const_cast<std::vector<Fd>&>(listeners.sockets());
  sockets.emplace_back(sockets[0].number());
  CHECK(!listeners.is_valid());
  sockets.back().release();
  CHECK(!listeners.is_valid());
  BP_CHECK_DIES("assertion failed: is_valid()", listeners.~Listeners());
  sockets.pop_back();
  CHECK(listeners.is_valid());
  Fd first = std::move(sockets[0]);
  Fd second = std::move(sockets[1]);
  sockets.clear();
  CHECK(!listeners.is_valid());  // a path without a socket
  sockets.push_back(std::move(first));
  sockets.push_back(std::move(second));
  CHECK(listeners.is_valid());
}

TEST(Listeners, ReportsEveryAddressThatCannotBeHadAndOpensTheOthers) {
  Listeners listeners("listen in [here]");
  listeners.open({unix_address(path("none/a.sock")), unix_address(path("good.sock")),
                  unix_address(path("none/b.sock"))},
                 &problems);
  LONGS_EQUAL(2, problems.size());
  CHECK(std::strstr(problems[0].doing, "a.sock") != nullptr);
  CHECK(std::strstr(problems[1].doing, "b.sock") != nullptr);
  LONGS_EQUAL(1, listeners.sockets().size());
}

TEST(Listeners, AFileOfAnotherThatListensIsLeftAlone) {
  Listeners first("listen in [here]");
  first.open({unix_address(path("a.sock"))}, &problems);
  LONGS_EQUAL(0, problems.size());
  {
    Listeners second("listen in [here]");
    second.open({unix_address(path("a.sock"))}, &problems);
    LONGS_EQUAL(1, problems.size());
  }
  CHECK(access(path("a.sock").c_str(), F_OK) == 0);
}

TEST(Listeners, TakesOverWhatTheServiceManagerPasses) {
  const Fd one = listening();
  const Fd two = listening();
  pass(0, one.number());
  pass(1, two.number());
  announce(getpid(), "2");
  {
    Listeners listeners("listen in [here]");
    listeners.open({activation()}, &problems);
    LONGS_EQUAL(0, problems.size());
    LONGS_EQUAL(2, listeners.sockets().size());
    LONGS_EQUAL(kFirst, listeners.sockets()[0].number());
    LONGS_EQUAL(kFirst + 1, listeners.sockets()[1].number());
    CHECK((fcntl(kFirst, F_GETFD) & FD_CLOEXEC) != 0);
  }
}

TEST(Listeners, WhatOthersReachIsRefusedWhereOnlyThisMachineMay) {
  const Fd open = listening();  // bound to any address
  pass(0, open.number());
  announce(getpid(), "1");
  Listeners local("listen in [here]", {"others reach it", "close it"});
  local.open({activation()}, &problems);
  LONGS_EQUAL(1, problems.size());
  STRCMP_EQUAL("taking over activated sockets for listen in [here]", problems[0].doing);
  STRCMP_EQUAL("descriptor 3: others reach it", problems[0].answer);
  STRCMP_EQUAL("close it", problems[0].cure);
  LONGS_EQUAL(0, local.sockets().size());
}

TEST(Listeners, WhatOnlyThisMachineReachesIsTakenOver) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  LONGS_EQUAL(0, bind(fd.number(), reinterpret_cast<const sockaddr*>(&here), sizeof here));
  listen(fd.number(), 4);
  pass(0, fd.number());
  announce(getpid(), "1");
  Listeners local("listen in [here]", {"others reach it", "close it"});
  local.open({activation()}, &problems);
  LONGS_EQUAL(0, problems.size());
  LONGS_EQUAL(1, local.sockets().size());
}

TEST(Listeners, ActivationOfAnotherProcessIsRefused) {
  check_refused("LISTEN_PID does not name this process");
  announce(getpid() + 1, "1");
  check_refused("LISTEN_PID does not name this process");
}

TEST(Listeners, AnImpossibleCountIsRefused) {
  for (const char* count : {"0", "-1", "9", "many", ""}) {
    announce(getpid(), count);
    check_refused("LISTEN_FDS is not a number from 1 to 8");
  }
  unsetenv("LISTEN_FDS");
  check_refused("LISTEN_FDS is not a number from 1 to 8");
}

TEST(Listeners, WhatIsNoListeningStreamSocketIsRefused) {
  const Fd connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd device(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd memory(memfd_create("memory", MFD_CLOEXEC));
  const Fd datagrams(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Fd packets(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un nameless = {};
  nameless.sun_family = AF_UNIX;
  bind(packets.number(), reinterpret_cast<sockaddr*>(&nameless), sizeof(sa_family_t));
  LONGS_EQUAL(0, listen(packets.number(), 1));  // it listens, but is no stream
  announce(getpid(), "1");
  pass(0, connected.number());
  const std::string doing = "descriptor 3 should be a listening stream socket, but is ";
  const struct {
    const Fd* fd;
    const char* kind;
  } kWrong[] = {{&connected, "a socket that does not listen"},
                {&device, "not a socket"},
                {&memory, "a file or memory"},
                {&datagrams, "not a stream socket"},
                {&packets, "not a stream socket"}};
  for (const auto& each : kWrong) {
    dup2(each.fd->number(), kFirst);
    check_refused((doing + each.kind).c_str());
  }
  close(kFirst);
  check_refused((doing + "closed").c_str());
}

TEST(Listeners, NumbersWithMoreBehindThemAreNone) {
  setenv("LISTEN_PID", (std::to_string(getpid()) + "x").c_str(), 1);
  setenv("LISTEN_FDS", "1", 1);
  check_refused("LISTEN_PID does not name this process");
  announce(getpid(), "1,2");
  check_refused("LISTEN_FDS is not a number from 1 to 8");
}
