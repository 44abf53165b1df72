// The tests send the signal of a memory error themselves: a real memory error would take a page
// from the machine for good.
#include "pinned_pool/memory_error.h"

#include <csignal>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/file.h"
#include "tests/support/death_test.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

void send_bus_error(const void* address, int code) {
  siginfo_t info = {};
  info.si_signo = SIGBUS;
  info.si_code = code;
  info.si_addr = const_cast<void*>(address);
  syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info);
}

const Segment& make_segment() {
  PinnedPool& pool = process_pool();
  if (pool.segment_count() == 0) {
    BP_PROBE_CHECK(pool.create_segment("boot", 8 * kMiB, PageSize::k4KiB, 1).ok());
  }
  return *pool.create_segment("volume:ram0", 4 * kMiB, PageSize::k4KiB, 1).take();
}

}  // namespace

TEST_GROUP(MemoryError){};

BP_PROBE(HardwareErrorInThePool) {
  const Segment& segment = make_segment();
  signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler there
  report_memory_errors();
  send_bus_error(segment.address + 5000, BUS_MCEERR_AR);
}
TEST(MemoryError, NamesTheOwnerOfThePageAndEndsTheProcess) {
  const test::Ended ended = test::run_fresh("HardwareErrorInThePool");
  LONGS_EQUAL(SIGBUS, ended.signal);
  CHECK_TEXT(ended.said("using memory of volume:ram0 at 0x"), ended.text);
  CHECK_TEXT(ended.said("the hardware reports a memory error"), ended.text);
}

BP_PROBE(MissingPageInThePool) {
  const Segment& segment = make_segment();
  signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler there
  report_memory_errors();
  send_bus_error(segment.address + segment.bytes - 1, BUS_ADRERR);
}
TEST(MemoryError, TellsAPageThatWasTakenAwayFromOneThatFailed) {
  const test::Ended ended = test::run_fresh("MissingPageInThePool");
  LONGS_EQUAL(SIGBUS, ended.signal);
  CHECK_TEXT(ended.said("the page is no longer there"), ended.text);
}

BP_PROBE(BusErrorElsewhere) {
  const Segment& segment = make_segment();
  signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler there
  report_memory_errors();
  send_bus_error(segment.address + segment.bytes, BUS_ADRERR);
}
TEST(MemoryError, SaysNothingAboutOtherMemory) {
  const test::Ended ended = test::run_fresh("BusErrorElsewhere");
  LONGS_EQUAL(SIGBUS, ended.signal);
  CHECK_TEXT(!ended.said("using memory"), ended.text);
}

BP_PROBE(BusErrorWithAnEarlierHandler) {
  signal(SIGBUS, [](int) { _exit(42); });
  const Segment& segment = make_segment();
  report_memory_errors();
  report_memory_errors();  // does not replace the earlier handler
  send_bus_error(segment.address, BUS_MCEERR_AR);
}
TEST(MemoryError, LeavesTheEndToWhoWasThereBefore) {
  const test::Ended ended = test::run_fresh("BusErrorWithAnEarlierHandler");
  LONGS_EQUAL(0, ended.signal);
  LONGS_EQUAL(42, ended.exit_code);
  CHECK_TEXT(ended.said("using memory of volume:ram0"), ended.text);
}

int flags_of_handler() {
  struct sigaction action = {};
  sigaction(SIGBUS, nullptr, &action);
  return action.sa_flags;
}

BP_PROBE(HandlerThatHidesNothing) {
  signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler there
  report_memory_errors();
  BP_PROBE_CHECK((flags_of_handler() & SA_NODEFER) == 0);
}
TEST(MemoryError, LeavesTheSignalBlockedInItsHandlerSoThatIdleHeapsAreEmptied) {
  BP_CHECK_PROBE(HandlerThatHidesNothing);
}

BP_PROBE(HandlerOfAnEarlierOneThatNests) {
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_NODEFER;
  sigaction(SIGBUS, &action, nullptr);
  report_memory_errors();
  BP_PROBE_CHECK((flags_of_handler() & SA_NODEFER) != 0);
}
TEST(MemoryError, LetsTheSignalNestIfTheEarlierHandlerDoes) {
  BP_CHECK_PROBE(HandlerOfAnEarlierOneThatNests);
}

BP_PROBE(FileThatIsCut) {
  static char path[] = "/tmp/bedplate-mapped-XXXXXX";
  const Fd file(mkstemp(path));
  BP_PROBE_CHECK(file.is_open() && unlink(path) == 0 && ftruncate(file.number(), 8192) == 0);
  void* mapping = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  BP_PROBE_CHECK(mapping != MAP_FAILED);
  signal(SIGBUS, SIG_DFL);  // a sanitizer has a handler there
  report_memory_errors();
  name_mapped_file(mapping, 8192, path);
  BP_PROBE_CHECK(ftruncate(file.number(), 0) == 0);
  static_cast<volatile char*>(mapping)[5000] = 1;
}
TEST(MemoryError, NamesAMappedFileThatWasCutShort) {
  const test::Ended ended = test::run_fresh("FileThatIsCut");
  LONGS_EQUAL(SIGBUS, ended.signal);
  CHECK_TEXT(ended.said("using the file /tmp/bedplate-mapped-"), ended.text);
  CHECK_TEXT(ended.said("another process has truncated it; find which one"), ended.text);
}

BP_PROBE(FileThatIsForgotten) {
  alignas(8) static std::byte memory[64];
  signal(SIGBUS, SIG_DFL);
  report_memory_errors();
  for (int i = 0; i < 100; ++i) {
    name_mapped_file(memory, sizeof memory, "/a/file");
    forget_mapped_file(memory);
  }
  send_bus_error(memory, BUS_ADRERR);
}
TEST(MemoryError, SaysNothingOfAFileThatIsMappedNoMore) {
  const test::Ended ended = test::run_fresh("FileThatIsForgotten");
  LONGS_EQUAL(SIGBUS, ended.signal);
  CHECK_TEXT(!ended.said("/a/file"), ended.text);
}
