// Messages to a supervisor that the test plays, for each kind of socket name, and the case without
// a supervisor.
#include "platform/supervisor.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "platform/environment.h"
#include "platform/file.h"
#include "platform/units.h"
#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// Listens at `name`, which begins with / or @.
class Listener {
 public:
  explicit Listener(const std::string& name) { bind_to(name); }
  void bind_to(const std::string& name) {
    socket_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    unlink(name.c_str());
    LONGS_EQUAL(0, bind(socket_.number(), reinterpret_cast<const sockaddr*>(&address), bytes));
  }
  void close() { socket_.close(); }
  // The next datagram; "": there is none.
  std::string hear() {
    char text[1024];
    const ssize_t bytes = recv(socket_.number(), text, sizeof text, 0);
    return {text, static_cast<size_t>(bytes < 0 ? 0 : bytes)};
  }

 private:
  Fd socket_;
};

}  // namespace

TEST_GROUP(Supervisor) {
  test::FakeRoot root;
  const std::string path = root.path() + "/notify";
  Supervisor supervisor;
  char text[1024];

  void teardown() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }
  void open_at(const std::string& name) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    const auto opened = supervisor.open();
    STRCMP_EQUAL("", opened.ok() ? "" : opened.error().answer);
  }
  std::string problem_at(const std::string& name) {
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    Supervisor refused;
    const auto opened = refused.open();
    CHECK_FALSE(refused.is_there());
    CHECK_FALSE(refused.ready());
    POINTERS_EQUAL(nullptr, environment_text("NOTIFY_SOCKET"));
    return opened.ok() ? "" : format_error(opened.error(), text, sizeof text);
  }
  uint64_t watchdog_of(const char* time, const char* process) {
    const Listener listener(path);
    setenv("NOTIFY_SOCKET", path.c_str(), 1);
    setenv("WATCHDOG_USEC", time, 1);
    if (process != nullptr) setenv("WATCHDOG_PID", process, 1);
    Supervisor watched;
    CHECK(watched.open().ok());
    POINTERS_EQUAL(nullptr, environment_text("WATCHDOG_USEC"));
    POINTERS_EQUAL(nullptr, environment_text("WATCHDOG_PID"));
    return watched.watchdog_ns();
  }
};

TEST(Supervisor, HearsEachThingOnce) {
  Listener listener(path);
  open_at(path);
  CHECK(supervisor.is_there());
  CHECK(supervisor.status("booting: taking memory", 2 * kNsPerSecond));
  STRCMP_EQUAL("EXTEND_TIMEOUT_USEC=2000000\nSTATUS=booting: taking memory",
               listener.hear().c_str());
  CHECK(supervisor.ready());
  STRCMP_EQUAL("READY=1", listener.hear().c_str());
  CHECK(supervisor.status("100 % of it"));
  STRCMP_EQUAL("STATUS=100 % of it", listener.hear().c_str());
  CHECK(supervisor.alive());
  STRCMP_EQUAL("WATCHDOG=1", listener.hear().c_str());
  CHECK(supervisor.stopping(30 * kNsPerSecond));
  STRCMP_EQUAL("STOPPING=1\nEXTEND_TIMEOUT_USEC=30000000\nSTATUS=draining",
               listener.hear().c_str());
  STRCMP_EQUAL("", listener.hear().c_str());
}

TEST(Supervisor, AnAbstractNameBeginsWithAnAt) {
  const std::string name = "@bedplate-supervisor-test-" + std::to_string(getpid());
  Listener listener(name);
  open_at(name);
  CHECK(supervisor.ready());
  STRCMP_EQUAL("READY=1", listener.hear().c_str());
}

TEST(Supervisor, WithoutANameThereIsNone) {
  CHECK(supervisor.open().ok());
  CHECK_FALSE(supervisor.is_there());
  CHECK_FALSE(supervisor.ready());
  STRCMP_EQUAL("", problem_at("").c_str());
}

TEST(Supervisor, ANameThatCannotBeHadIsSaidWithItsCure) {
  STRCMP_EQUAL(("looking for the supervisor at NOTIFY_SOCKET=" + path +
                ": No such file or directory; unset NOTIFY_SOCKET, or set it to a socket that this "
                "user may write to")
                   .c_str(),
               problem_at(path).c_str());
  STRCMP_CONTAINS("it begins neither with / nor with @, or is longer than 107 bytes",
                  problem_at("vsock:2:1234").c_str());
  STRCMP_CONTAINS("longer than 107 bytes", problem_at("/" + std::string(107, 'x')).c_str());
  root.write("/notify", "");
  STRCMP_CONTAINS("Connection refused", problem_at(path).c_str());
}

TEST(Supervisor, TheWatchdogIsThatOfThisProcess) {
  CHECK(watchdog_of("30000000", nullptr) == 30 * kNsPerSecond);
  CHECK(watchdog_of("30000000", std::to_string(getpid()).c_str()) == 30 * kNsPerSecond);
  CHECK(watchdog_of("30000000", "1") == 0);
  unsetenv("WATCHDOG_PID");
  CHECK(watchdog_of("soon", nullptr) == 0);
  CHECK(watchdog_of("18446744073709551615", nullptr) > 30 * kNsPerSecond);
}

TEST(Supervisor, NothingWaitsForOneThatDoesNotListen) {
  Listener listener(path);
  open_at(path);
  int taken = 0;
  while (supervisor.alive()) ++taken;
  CHECK(taken > 0);
  for (int i = 0; i < taken; ++i) STRCMP_EQUAL("WATCHDOG=1", listener.hear().c_str());
  STRCMP_EQUAL("", listener.hear().c_str());
  CHECK(supervisor.ready());
  STRCMP_EQUAL("READY=1", listener.hear().c_str());
}

TEST(Supervisor, OneThatWasStartedAnewIsFoundAgain) {
  Listener listener(path);
  open_at(path);
  listener.close();
  CHECK_FALSE(supervisor.alive());
  listener.bind_to(path);
  CHECK(supervisor.alive());
  STRCMP_EQUAL("WATCHDOG=1", listener.hear().c_str());
}

TEST(Supervisor, ProgramsThatAreStartedDoNotSpeakForThisOne) {
  const Listener listener(path);
  setenv("WATCHDOG_USEC", "1000", 1);
  open_at(path);
  LONGS_EQUAL(0, std::system("test -z \"$NOTIFY_SOCKET$WATCHDOG_USEC\""));
}
