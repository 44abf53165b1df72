#include "platform/failed_calls.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <sys/resource.h>
#include <unistd.h>

#include "platform/file.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(FailedCalls){};

BP_PROBE(WriteBeyondTheLimitOfAFile) {
  char path[] = "/tmp/bedplate-limit-XXXXXX";
  const Fd file(mkstemp(path));
  BP_PROBE_CHECK(file.is_open() && unlink(path) == 0);
  const rlimit limit = {4096, 4096};
  BP_PROBE_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  keep_alive_on(SIGXFSZ);
  errno = 0;
  BP_PROBE_CHECK(pwrite(file.number(), "x", 1, 8192) == -1 && errno == EFBIG);
}
TEST(FailedCalls, AWriteBeyondTheLimitOfAFilesSizeIsItsError) {
  LONGS_EQUAL(0, test::run_fresh("WriteBeyondTheLimitOfAFile").exit_code);
}

BP_PROBE(WriteThatNobodyReads) {
  int ends[2];
  BP_PROBE_CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
  keep_alive_on(SIGPIPE);
  errno = 0;
  BP_PROBE_CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE);
}
TEST(FailedCalls, AWriteThatNobodyReadsIsItsError) {
  LONGS_EQUAL(0, test::run_fresh("WriteThatNobodyReads").exit_code);
}

BP_PROBE(HandlersOfTheProgram) {
  signal(SIGPIPE, [](int) { _exit(7); });
  keep_alive_on(SIGPIPE);
  raise(SIGPIPE);
}
TEST(FailedCalls, AHandlerOfTheProgramStays) {
  LONGS_EQUAL(7, test::run_fresh("HandlersOfTheProgram").exit_code);
}
