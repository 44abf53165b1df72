// The files that replace descriptors 0 to 2 if those are closed. The tests run in forked children,
// which may have no output to print to: their exit code says which check failed.
#include "platform/standard_streams.h"

#include <cerrno>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/skip.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

void close_streams(unsigned streams) {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if ((streams >> stream & 1) != 0) close(stream);
  }
}

bool is_null(int stream, int access) {
  struct stat null {};
  struct stat status {};
  return stat("/dev/null", &null) == 0 && fstat(stream, &status) == 0 &&
         null.st_rdev == status.st_rdev && (fcntl(stream, F_GETFL) & O_ACCMODE) == access;
}

}  // namespace

TEST_GROUP(StandardStreams){};

TEST(StandardStreams, ThoseThatAreClosedAreOpenedEachForItsUse) {
  for (unsigned closed = 1; closed < 8; ++closed) {
    const test::Ended ended = test::run_forked([&] {
      close_streams(closed);
      hold_standard_streams();
      for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
        const bool was_closed = (closed >> stream & 1) != 0;
        if (stands_in(stream) != was_closed) _exit(10 + stream);
        if (!was_closed) continue;
        if (!is_null(stream, stream == STDIN_FILENO ? O_RDONLY : O_WRONLY)) _exit(20 + stream);
        if ((fcntl(stream, F_GETFD) & FD_CLOEXEC) != 0) _exit(30 + stream);
      }
      if (dup(0) <= STDERR_FILENO) _exit(40);
    });
    LONGS_EQUAL(0, ended.exit_code);
  }
}

TEST(StandardStreams, ThoseThatAreOpenStayAsTheyAre) {
  const test::Ended ended = test::run_forked([] {
    struct stat before {};
    struct stat after {};
    fstat(STDERR_FILENO, &before);
    const int next = dup(STDERR_FILENO);
    close(next);
    hold_standard_streams();
    fstat(STDERR_FILENO, &after);
    if (before.st_ino != after.st_ino || stands_in(STDERR_FILENO)) _exit(2);
    if (dup(STDERR_FILENO) != next) _exit(3);
  });
  LONGS_EQUAL(0, ended.exit_code);
}

// In an empty root directory, as the first process or a process in a chroot may have.
TEST(StandardStreams, WithoutTheNullDeviceWhatStandsInRefusesAll) {
  if (geteuid() != 0) BP_SKIP("another root directory takes root");
  char root[] = "/tmp/bedplate-streams-XXXXXX";
  CHECK(mkdtemp(root) != nullptr);
  const test::Ended ended = test::run_forked([&] {
    if (chroot(root) != 0) _exit(2);
    close_streams(7);
    hold_standard_streams();
    char byte = 0;
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
      if (fcntl(stream, F_GETFD) != 0 || !stands_in(stream)) _exit(3);
      if (read(stream, &byte, 1) != -1 || errno != EBADF) _exit(4);
      if (write(stream, &byte, 1) != -1 || errno != EBADF) _exit(5);
    }
  });
  LONGS_EQUAL(0, ended.exit_code);
  LONGS_EQUAL(0, rmdir(root));
}
