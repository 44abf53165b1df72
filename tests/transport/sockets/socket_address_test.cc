// Listen addresses as text, and listening at them against the real kernel.
#include "transport/sockets/socket_address.h"

#include <climits>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "platform/units.h"
#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

constexpr const char* kCure =
    "write \"tcp:ADDRESS:PORT\" with a numeric address ([...] around IPv6), \"unix:/PATH\" or "
    "\"activation:\"";

SocketAddress parsed(const std::string& text) {
  Result<SocketAddress> result = parse_socket_address(text);
  CHECK_TEXT(result.ok(), text.c_str());
  return result.take();
}

void check_refused(const std::string& text, const char* what) {
  const Result<SocketAddress> result = parse_socket_address(text);
  CHECK_TEXT(!result.ok(), text.c_str());
  CHECK(result.error().kind == ErrorKind::kConfiguration);
  STRCMP_EQUAL(("\"" + text + "\" is not a listen address: " + what).c_str(),
               result.error().answer);
  STRCMP_EQUAL(kCure, result.error().cure);
}

SocketAddress loopback(uint16_t port) {
  SocketAddress address;
  address.host = "127.0.0.1";
  address.port = port;
  return address;
}

uint16_t port_of(const Fd& listener) {
  sockaddr_in bound{};
  socklen_t bound_bytes = sizeof bound;
  LONGS_EQUAL(0, getsockname(listener.number(), reinterpret_cast<sockaddr*>(&bound), &bound_bytes));
  return ntohs(bound.sin_port);
}

bool can_connect(const std::string& unix_path) {
  const Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, unix_path.c_str(), unix_path.size() + 1);
  return connect(client.number(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
}

bool can_connect(uint16_t port) {
  const Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(client.number(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
}

}  // namespace

TEST_GROUP(SocketAddress) {
  // The path of a socket in a directory of its own. Both are removed with the test.
  std::string unix_path() {
    if (directory[0] == '\0') {
      std::strcpy(directory, "/tmp/bp_socket_XXXXXX");
      CHECK(mkdtemp(directory) != nullptr);
    }
    return std::string(directory) + "/s";
  }
  void teardown() override {
    if (directory[0] == '\0') return;
    unlink(unix_path().c_str());
    rmdir(directory);
  }
  char directory[32] = {};
};

// ---- Text ----

TEST(SocketAddress, TextAndBack) {
  for (const char* text : {"tcp:127.0.0.1:10809", "tcp:0.0.0.0:1", "tcp:255.255.255.255:65535",
                           "tcp:[::1]:10809", "tcp:[::]:80", "tcp:[2001:db8::10.0.0.1]:80",
                           "unix:/run/demo.sock", "unix:/a:b", "activation:"}) {
    STRCMP_EQUAL(text, parsed(text).text().c_str());
  }
}

TEST(SocketAddress, PartsArrive) {
  const SocketAddress tcp4 = parsed("tcp:127.0.0.1:10809");
  CHECK(tcp4.kind == SocketAddress::Kind::kTcp4);
  STRCMP_EQUAL("127.0.0.1", tcp4.host.c_str());
  LONGS_EQUAL(10809, tcp4.port);
  const SocketAddress tcp6 = parsed("tcp:[::1]:1");
  CHECK(tcp6.kind == SocketAddress::Kind::kTcp6);
  STRCMP_EQUAL("::1", tcp6.host.c_str());
  LONGS_EQUAL(1, tcp6.port);
  const SocketAddress local = parsed("unix:/run/demo.sock");
  CHECK(local.kind == SocketAddress::Kind::kUnix);
  STRCMP_EQUAL("/run/demo.sock", local.path.c_str());
  CHECK(parsed("activation:").kind == SocketAddress::Kind::kActivation);
  CHECK(tcp4 == parsed("tcp:127.0.0.1:10809"));
  CHECK(!(tcp4 == parsed("tcp:127.0.0.1:10808")));
}

TEST(SocketAddress, RefusesUnknownKinds) {
  for (const char* text : {"", "tcp", "udp:127.0.0.1:1", "127.0.0.1:10809", "TCP:127.0.0.1:1",
                           "/run/demo.sock", "activation", "activation:x", " tcp:127.0.0.1:1"}) {
    check_refused(text, "it does not begin with a known kind");
  }
}

TEST(SocketAddress, RefusesPorts) {
  check_refused("tcp:", "the port is missing");
  check_refused("tcp:localhost", "the port is missing");
  for (const char* port :
       {"", "0", "65536", "99999999999", "-1", "+1", "http", "80x", " 80", "80 ", "0x50"}) {
    check_refused(std::string("tcp:127.0.0.1:") + port, "the port is not a number from 1 to 65535");
  }
}

TEST(SocketAddress, RefusesHosts) {
  for (const char* host :
       {"", "localhost", "127.0.0", "127.0.0.256", "127.0.0.1.1", "127.0.0.01", "::1", "[::1",
        "::1]", "[]", "[127.0.0.1]", "[:::]", "[fe80::1%lo]", "*", " 127.0.0.1", "["}) {
    check_refused(std::string("tcp:") + host + ":1", "the address is not numeric");
  }
  check_refused("tcp:[::ffff:127.0.0.1]:1",
                "an IPv6 socket accepts no IPv4; write the plain IPv4 address");
}

TEST(SocketAddress, RefusesPaths) {
  check_refused("unix:", "the path must begin with /");
  check_refused("unix:run/demo.sock", "the path must begin with /");
  check_refused("unix:@abstract", "the path must begin with /");
  check_refused("unix:/" + std::string(107, 'x'), "the path has more than 107 bytes");
  STRCMP_EQUAL(("/" + std::string(106, 'x')).c_str(),
               parsed("unix:/" + std::string(106, 'x')).path.c_str());
}

// ---- Listening ----

TEST(SocketAddress, ListensOnTcp) {
  Result<Fd> listener = listen_at(loopback(0));
  CHECK(listener.ok());
  CHECK(can_connect(port_of(listener.value())));
  CHECK(fcntl(listener.value().number(), F_GETFD) & FD_CLOEXEC);
}

TEST(SocketAddress, TcpPortInUseIsAnErrorWithItsCure) {
  Result<Fd> first = listen_at(loopback(0));
  CHECK(first.ok());
  const uint16_t port = port_of(first.value());
  const Result<Fd> second = listen_at(loopback(port));
  CHECK(!second.ok());
  CHECK(second.error().kind == ErrorKind::kSystem);
  STRCMP_EQUAL(("listening at tcp:127.0.0.1:" + std::to_string(port)).c_str(),
               second.error().doing);
  STRCMP_EQUAL("Address already in use", second.error().answer);
  STRCMP_CONTAINS("`ss -ltnp` names it", second.error().cure);
}

TEST(SocketAddress, SeveralSocketsShareAPort) {
  constexpr size_t kSockets = 3;
  Result<std::vector<Fd>> made = listen_together(loopback(0), kSockets);
  CHECK(made.ok());
  const std::vector<Fd>& sockets = made.value();
  LONGS_EQUAL(kSockets, sockets.size());
  const uint16_t port = port_of(sockets[0]);
  for (const Fd& each : sockets) {
    LONGS_EQUAL(port, port_of(each));
    CHECK(is_port_shared(each.number()));
    CHECK(fcntl(each.number(), F_GETFD) & FD_CLOEXEC);
    LONGS_EQUAL(0, fcntl(each.number(), F_SETFL, O_NONBLOCK));
  }
  // Each connection is at one of them; among so many each has some.
  size_t counts[kSockets] = {};
  for (int i = 0; i < 200; ++i) CHECK(can_connect(port));
  CHECK(test::eventually([&] {
    for (size_t i = 0; i < kSockets; ++i) {
      const Fd served(accept4(sockets[i].number(), nullptr, nullptr, SOCK_CLOEXEC));
      counts[i] += served.is_open() ? 1 : 0;
    }
    return counts[0] + counts[1] + counts[2] == 200;
  }));
  for (const size_t count : counts) CHECK(count > 0);
}

TEST(SocketAddress, ASharedPortIsInUseForAnotherProgram) {
  Result<std::vector<Fd>> made = listen_together(loopback(0), 2);
  CHECK(made.ok());
  const uint16_t port = port_of(made.value()[0]);
  const Result<std::vector<Fd>> second = listen_together(loopback(port), 2);
  CHECK(!second.ok());
  STRCMP_EQUAL(("listening at tcp:127.0.0.1:" + std::to_string(port)).c_str(),
               second.error().doing);
  STRCMP_EQUAL("Address already in use", second.error().answer);
  CHECK(!listen_at(loopback(port)).ok());
  made.value().clear();
  Result<Fd> alone = listen_at(loopback(port));  // and the other way round
  CHECK(alone.ok());
  CHECK(!is_port_shared(alone.value().number()));
  CHECK(!listen_together(loopback(port), 2).ok());
}

// A connection that its server closed first leaves TIME_WAIT behind; a restart must not wait.
TEST(SocketAddress, TcpPortCanBeTakenAgainAtOnce) {
  Result<Fd> first = listen_at(loopback(0));
  CHECK(first.ok());
  const uint16_t port = port_of(first.value());
  Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  LONGS_EQUAL(0, connect(client.number(), reinterpret_cast<sockaddr*>(&name), sizeof name));
  Fd served(accept4(first.value().number(), nullptr, nullptr, SOCK_CLOEXEC));
  CHECK(served.is_open());
  served.close();
  char byte;
  LONGS_EQUAL(0, read(client.number(), &byte, 1));  // the server's end is closed
  client.close();
  first.value().close();
  CHECK(listen_at(loopback(port)).ok());
}

TEST(SocketAddress, ListensOnAUnixSocket) {
  const std::string path = unix_path();
  Result<Fd> listener = listen_at(parsed("unix:" + path));
  CHECK(listener.ok());
  CHECK(can_connect(path));
  CHECK(fcntl(listener.value().number(), F_GETFD) & FD_CLOEXEC);
}

TEST(SocketAddress, StaleUnixSocketIsReplaced) {
  const std::string path = unix_path();
  {
    Result<Fd> gone = listen_at(parsed("unix:" + path));
    CHECK(gone.ok());
  }
  LONGS_EQUAL(0, access(path.c_str(), F_OK));
  Result<Fd> listener = listen_at(parsed("unix:" + path));
  CHECK(listener.ok());
  CHECK(can_connect(path));
}

TEST(SocketAddress, LiveUnixSocketIsLeftAlone) {
  const std::string path = unix_path();
  Result<Fd> first = listen_at(parsed("unix:" + path));
  CHECK(first.ok());
  const Result<Fd> second = listen_at(parsed("unix:" + path));
  CHECK(!second.ok());
  STRCMP_EQUAL(("listening at unix:" + path).c_str(), second.error().doing);
  STRCMP_EQUAL("Address already in use", second.error().answer);
  STRCMP_CONTAINS("remove the file", second.error().cure);
  CHECK(can_connect(path));
}

TEST(SocketAddress, FileThatIsNoSocketIsLeftAlone) {
  const std::string path = unix_path();
  std::ofstream(path) << "precious";
  const Result<Fd> result = listen_at(parsed("unix:" + path));
  CHECK(!result.ok());
  STRCMP_EQUAL("Address already in use", result.error().answer);
  std::string text;
  std::ifstream(path) >> text;
  STRCMP_EQUAL("precious", text.c_str());
}

TEST(SocketAddress, MissingDirectoryIsAnError) {
  const Result<Fd> result = listen_at(parsed("unix:/bp_no_such_directory/s"));
  CHECK(!result.ok());
  STRCMP_EQUAL("No such file or directory", result.error().answer);
  STRCMP_CONTAINS("make its directory", result.error().cure);
}

TEST(SocketAddress, AddressOfAnotherMachineIsAnErrorWithItsCure) {
  const Result<Fd> result = listen_at(parsed("tcp:192.0.2.1:10809"));
  CHECK(!result.ok());
  STRCMP_EQUAL("Cannot assign requested address", result.error().answer);
  STRCMP_CONTAINS("choose an address that this machine has", result.error().cure);
}

TEST(SocketAddress, APathThatNobodyListensAtIsSaidWithoutAPort) {
  const auto fd = start_connecting(parsed("unix:/nowhere/bedplate.sock"));
  CHECK_FALSE(fd.ok());
  STRCMP_EQUAL("connecting to /nowhere/bedplate.sock", fd.error().doing);
}

TEST(SocketAddress, ALongSilenceIsNoticed) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto option = [&](int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    LONGS_EQUAL(0, getsockopt(fd.number(), level, name, &value, &bytes));
    return value;
  };
  notice_silence(fd.number(), 100'000 * kNsPerSecond);
  LONGS_EQUAL(100'000'000, option(IPPROTO_TCP, TCP_USER_TIMEOUT));
  LONGS_EQUAL(32767, option(IPPROTO_TCP, TCP_KEEPIDLE));
  LONGS_EQUAL(32767, option(IPPROTO_TCP, TCP_KEEPINTVL));
  notice_silence(fd.number(), 10'000'000 * kNsPerSecond);
  LONGS_EQUAL(INT_MAX, option(IPPROTO_TCP, TCP_USER_TIMEOUT));
  CHECK(option(SOL_SOCKET, SO_KEEPALIVE) != 0);
}

TEST(SocketAddress, KnowsWhatOnlyThisMachineReaches) {
  const char* const local[] = {"tcp:127.0.0.1:1", "tcp:127.255.0.9:1", "tcp:[::1]:1", "unix:/x"};
  for (const char* text : local) CHECK_TEXT(is_local_address(parsed(text)), text);
  const char* const others[] = {"tcp:0.0.0.0:1", "tcp:10.0.0.1:1", "tcp:128.0.0.1:1",
                                "tcp:[::]:1",    "tcp:[::2]:1",    "activation:"};
  for (const char* text : others) CHECK_FALSE_TEXT(is_local_address(parsed(text)), text);
}

TEST(SocketAddress, KnowsOfABoundSocketToo) {
  const auto bound = [](int family, const void* address, socklen_t bytes) {
    Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    LONGS_EQUAL(0, bind(fd.number(), static_cast<const sockaddr*>(address), bytes));
    return is_local_socket(fd.number());
  };
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  CHECK_FALSE(bound(AF_INET, &four, sizeof four));
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(bound(AF_INET, &four, sizeof four));
  const sa_family_t unnamed = AF_UNIX;
  CHECK(bound(AF_UNIX, &unnamed, sizeof unnamed));
  if (!Fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)).is_open()) return;  // without IPv6
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  CHECK_FALSE(bound(AF_INET6, &six, sizeof six));
  CHECK(inet_pton(AF_INET6, "::ffff:127.0.0.1", &six.sin6_addr) == 1);
  CHECK(bound(AF_INET6, &six, sizeof six));
  CHECK_FALSE(is_local_socket(-1));
}
