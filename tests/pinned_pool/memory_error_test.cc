// The signal is sent by hand: a real memory error would take a page from the machine for good.
#include "pinned_pool/memory_error.h"

#include <csignal>
#include <cstring>

#include <sys/syscall.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
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
  CHECK_TEXT(ended.said("the page is not there any more"), ended.text);
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
  report_memory_errors();  // the earlier one is still who was there before
  send_bus_error(segment.address, BUS_MCEERR_AR);
}
TEST(MemoryError, LeavesTheEndToWhoWasThereBefore) {
  const test::Ended ended = test::run_fresh("BusErrorWithAnEarlierHandler");
  LONGS_EQUAL(0, ended.signal);
  LONGS_EQUAL(42, ended.exit_code);
  CHECK_TEXT(ended.said("using memory of volume:ram0"), ended.text);
}
