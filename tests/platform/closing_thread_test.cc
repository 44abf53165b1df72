#include "platform/closing_thread.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "platform/clock.h"
#include "tests/support/patience.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

struct Pipe {
  Fd read_end, write_end;
  Pipe() {
    int ends[2] = {-1, -1};
    CHECK(pipe(ends) == 0);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
  }
  bool is_closed() {
    char byte = 0;
    return test::has_input(read_end.number()) && read(read_end.number(), &byte, 1) == 0;
  }
};

// A socket whose last close waits for unsent data, which nobody reads, longer than kPatienceNs.
Fd lingering_socket(const Fd& listener) {
  sockaddr_in address = {};
  socklen_t bytes = sizeof address;
  getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &bytes);
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(connect(socket.number(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
  set_blocking(socket.number(), false);
  static char data[65536];
  while (send(socket.number(), data, sizeof data, MSG_NOSIGNAL) > 0) {
  }
  const linger on = {1, 2 * static_cast<int>(test::kPatienceNs / kNsPerSecond)};
  CHECK(setsockopt(socket.number(), SOL_SOCKET, SO_LINGER, &on, sizeof on) == 0);
  return socket;
}

}  // namespace

TEST_GROUP(ClosingThread){};

TEST(ClosingThread, ClosesWhatItIsGiven) {
  Pipe pipes[3];
  ClosingThread closing;
  CHECK(closing.start().ok());
  for (Pipe& each : pipes) {
    closing.close(each.write_end);
    CHECK_FALSE(each.write_end.is_open());
  }
  for (Pipe& each : pipes) CHECK(each.is_closed());
}

TEST(ClosingThread, ClosesAtOnceWhereItWasNotStarted) {
  Pipe one;
  ClosingThread closing;
  closing.close(one.write_end);
  CHECK(one.is_closed());
  closing.stop();
}

// A server that fails to start its own thread destroys its ClosingThread without stop().
TEST(ClosingThread, EndsWithItsObject) {
  for (int i = 0; i < 3; ++i) {
    ClosingThread closing;
    CHECK(closing.start().ok());
  }
}

TEST(ClosingThread, WaitsForNothingThatLingers) {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(listen(listener.number(), 1) == 0);  // on a port that the kernel chooses
  Fd lingers = lingering_socket(listener);
  const uint64_t begin_ns = monotonic_ns();
  ClosingThread closing;
  CHECK(closing.start().ok());
  closing.close(lingers);
  closing.stop();
  CHECK(monotonic_ns() - begin_ns < test::kPatienceNs);
}
