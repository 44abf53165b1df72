// Every memfd is close-on-exec and sealable. If the kernel has MFD_NOEXEC_SEAL, it is also
// non-executable.
#include "platform/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "CppUTest/TestHarness.h"

using namespace bedplate;

TEST_GROUP(Memfd){};

TEST(Memfd, IsSealableAndNotForExecution) {
  const Fd fd = make_memfd("test");
  CHECK(fd.is_open());
  LONGS_EQUAL(FD_CLOEXEC, fcntl(fd.number(), F_GETFD));
  CHECK(fcntl(fd.number(), F_ADD_SEALS, F_SEAL_GROW) == 0);
  constexpr unsigned kNoexecSeal = 0x0008;  // MFD_NOEXEC_SEAL: Linux 6.3
  const Fd probe(memfd_create("probe", kNoexecSeal));
  struct stat status {};
  LONGS_EQUAL(0, fstat(fd.number(), &status));
  if (probe.is_open()) LONGS_EQUAL(0, status.st_mode & 0111);
}
