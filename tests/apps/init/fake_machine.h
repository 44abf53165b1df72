// A simulated machine for the first process: a directory as the root of a probe, a network of its
// own, and a filter of system calls. Mounts and sleeps do nothing; a reboot ends the process.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <linux/filter.h>
#include <linux/reboot.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/death_test.h"
#include "tests/support/fake_root.h"
#include "tests/support/skip.h"

namespace bedplate::test {

inline constexpr int kMachineEnded = 10;
inline constexpr const char* kRootVariable = "BP_TEST_ROOT";

// The test's side: the files of the machine, and a run of a probe in it.
class FakeMachine {
 public:
  FakeMachine() {
    write("/proc/cmdline", "quiet");
    write("/proc/sys/fs/nr_open", "1024");
    write("/dev/kmsg", "");
    write("/modules/order", "");
  }
  void write(const char* file, const std::string& text) { root_.write(file, text); }
  std::string path(const char* file) const { return root_.path() + file; }
  Ended run(const char* probe) {
    return run_fresh(probe, {std::string(kRootVariable) + "=" + root_.path()});
  }

 private:
  FakeRoot root_;
};

inline bool can_have_machine() {
  return exit_code_of([] {
           return chroot("/tmp") == 0 && unshare(CLONE_NEWPID | CLONE_NEWNET) == 0 ? 0 : 1;
         }) == 0;
}

// A sanitizer needs the real /proc.
#define BP_SKIP_WITHOUT_MACHINE() \
  BP_SKIP_UNDER_SANITIZER();      \
  if (!test::can_have_machine()) BP_SKIP("needs root that may make namespaces")

// Installs the filter: calls that would end the machine end the process, and calls that would
// change the machine do nothing. Returns whether this succeeds.
inline bool guard_machine() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mount, 8, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 7, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_reboot, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LINUX_REBOOT_CMD_CAD_ON, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LINUX_REBOOT_CMD_CAD_OFF, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),  // errno 0: success
  };
  const sock_fprog program = {sizeof steps / sizeof *steps, steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The probe's side: runs `steps` as process 1 of the machine. Exits with kMachineEnded if they
// ended the machine, else with 1.
template <typename Steps>
void as_first_process(Steps steps) {
  const char* root = std::getenv(kRootVariable);
  BP_PROBE_CHECK(root != nullptr && chroot(root) == 0 && chdir("/") == 0);
  BP_PROBE_CHECK(unshare(CLONE_NEWPID | CLONE_NEWNET) == 0);
  const pid_t first = fork();
  if (first == 0) {
    BP_PROBE_CHECK(guard_machine());
    steps();
    _exit(0);
  }
  int status = 0;
  BP_PROBE_CHECK(waitpid(first, &status, 0) == first);
  _exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS ? kMachineEnded : 1);
}

}  // namespace bedplate::test
