// The functions of machine.h: limits are set in a child, and calls of reboot(2) do not reach the
// kernel.
#include "apps/init/machine.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>

#include <sys/reboot.h>
#include <sys/resource.h>
#include <unistd.h>

#include "platform/log.h"
#include "tests/apps/configuration/configuration_support.h"
#include "tests/support/answered_calls.h"
#include "tests/support/death_test.h"
#include "tests/support/progress_news.h"
#include "tests/support/skip.h"
#include "tests/support/stderr_capture.h"

#include "CppUTest/TestHarness.h"

using namespace bedplate;

namespace {

// The last command to reboot(2). libc passes two magic numbers before the command.
constinit uint64_t asked = 0;
constinit long outcome_of_reboot = 0;
long remember(const uint64_t* arguments) {
  asked = arguments[2];
  return outcome_of_reboot;
}
bool answer_reboots() { return test::answer_calls(SYS_reboot, &remember); }

// Ends the machine. The call of reboot(2) ends the process, with an exit code for the command.
int reboot_of(MachineEnd end) {
  if (!answer_reboots()) return 99;
  test::answer_of_call = [](const uint64_t* arguments) -> long {
    const uint64_t what = arguments[2];
    _exit(what == RB_AUTOBOOT ? 1 : what == RB_POWER_OFF ? 2 : what == RB_HALT_SYSTEM ? 3 : 4);
  };
  end_machine(end);
}

}  // namespace

TEST_GROUP(Machine){};

TEST(Machine, ADeviceIsWaitedFor) {
  int asked = 0;
  const test::ProgressNews news;
  CHECK(wait_for_device("eth0", [&asked] { return ++asked == 3; }));
  LONGS_EQUAL(3, asked);
  LONGS_EQUAL(2, news.count_of("waiting for eth0: for 0 s now, 10 s at most"));
}

TEST(Machine, CapabilitiesThatAreKeptDependOnWhatIsServed) {
  const uint64_t boot = uint64_t{1} << 22;
  CHECK(capabilities_to_keep(parsed(file_with({}))) == boot);
  CHECK(capabilities_to_keep(parsed(file_with_messages())) == (boot | uint64_t{1} << 19));
  CHECK(capabilities_to_keep(parsed(file_with_messages("[messages]\nsingle_copy = []\n"))) == boot);
}

TEST(Machine, EndsAsItIsTold) {
  STRCMP_EQUAL("reboot", to_text(MachineEnd::kReboot));
  STRCMP_EQUAL("power-off", to_text(MachineEnd::kPowerOff));
  STRCMP_EQUAL("halt", to_text(MachineEnd::kHalt));
  LONGS_EQUAL(1, test::exit_code_of([] { return reboot_of(MachineEnd::kReboot); }));
  LONGS_EQUAL(2, test::exit_code_of([] { return reboot_of(MachineEnd::kPowerOff); }));
  LONGS_EQUAL(3, test::exit_code_of([] { return reboot_of(MachineEnd::kHalt); }));
}

TEST(Machine, TakesCtrlAltDelAndGivesItBack) {
  LONGS_EQUAL(0, test::exit_code_of([] {
                if (!answer_reboots()) return 99;
                if (!take_ctrl_alt_del().ok() || asked != RB_DISABLE_CAD) return 1;
                sigset_t blocked;
                pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
                if (sigismember(&blocked, SIGINT) != 1) return 2;
                give_up_ctrl_alt_del();
                return asked == RB_ENABLE_CAD ? 0 : 3;
              }));
}

TEST(Machine, WithoutTheRightToCtrlAltDelTheCureIsNamed) {
  const test::Ended ended = test::run_forked([] {
    outcome_of_reboot = -EPERM;
    if (answer_reboots()) log_error(take_ctrl_alt_del().error());
  });
  CHECK(ended.said("taking over ctrl-alt-del: Operation not permitted; give the first process "
                   "all"));
}

TEST(Machine, RaisesItsLimits) {
  const int outcome = test::exit_code_of([] {
    const rlimit few = {64, 64};
    const rlimit more = {65, 65};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    if (setrlimit(RLIMIT_NOFILE, &more) != 0) return 99;
    if (!raise_limits().ok()) return 2;
    rlimit files = {}, locked = {};
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    return files.rlim_cur > 1024 && locked.rlim_max == RLIM_INFINITY ? 0 : 3;
  });
  if (outcome == 99) BP_SKIP("needs CAP_SYS_RESOURCE");
  LONGS_EQUAL(0, outcome);
}

TEST(Machine, LimitsThatCannotBeRaisedHaveTheirCure) {
  const test::Ended ended = test::run_forked([] {
    if (test::answer_calls(SYS_prlimit64, [](const uint64_t*) { return -long{EPERM}; })) {
      log_error(raise_limits().error());
    }
  });
  CHECK(ended.said("raising the limit of locked memory: Operation not permitted; give the first"));
}

TEST(Machine, StreamsThatAreMissingAreOpened) {
  LONGS_EQUAL(0, test::exit_code_of([] {
                close(STDIN_FILENO);
                open_missing_streams();
                char byte = 0;
                return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;  // /dev/null
              }));
}

TEST(Machine, MoreHugepagesThanThereIsMemoryAreNotAskedFor) {
  AppliancePlan plan;
  plan.pool.segments = {{OwnerName("heap"), 1024 * kTiB, PageSize::k2MiB}};
  const HugepageCounts before = hugepage_counts(PageSize::k2MiB, kAnyNode);
  if (!before.supported) BP_SKIP("this kernel has no hugepages of 2 MiB");
  test::StderrCapture capture;
  reserve_hugepages(plan);
  const std::string said = capture.finish();
  STRCMP_CONTAINS("hugepages of 2 MiB: ", said.c_str());
  STRCMP_CONTAINS("MiB of memory are free, and 64 MiB are left to the kernel; make [pool] bytes "
                  "smaller",
                  said.c_str());
  LONGS_EQUAL(before.total_count, hugepage_counts(PageSize::k2MiB, kAnyNode).total_count);
}
