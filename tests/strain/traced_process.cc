#include "tests/strain/traced_process.h"

#include <cerrno>
#include <csignal>

#include <sched.h>
#include <sys/pidfd.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "platform/clock.h"
#include "tests/strain/verified_message.h"

namespace bedplate::strain {

void TracedProcess::trace(pid_t pid) {
  if (ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_EXITKILL) != 0) {
    fail("process %d cannot be traced", pid);
  }
  pid_ = pid;
}

Stop TracedProcess::stop_of(int status) noexcept {
  if (!WIFSTOPPED(status)) {
    pid_ = 0;
    return Stop::kEnded;
  }
  siginfo_t info = {};
  ptrace(PTRACE_GETSIGINFO, pid_, nullptr, &info);
  if (WSTOPSIG(status) != SIGTRAP) {
    // The process itself has caused this signal, and dies of it.
    ptrace(PTRACE_CONT, pid_, nullptr, WSTOPSIG(status));
    waitpid(pid_, &status, __WALL);
    pid_ = 0;
    return Stop::kEnded;
  }
  // A trap has the code of an instruction (SI_KERNEL) or of a signal (SI_TKILL). Steps have other
  // codes.
  return info.si_code == SI_KERNEL || info.si_code == SI_TKILL ? Stop::kTrapped : Stop::kStepped;
}

Stop TracedProcess::wait_for_trap(uint64_t within_ns) noexcept {
  const uint64_t until = monotonic_ns() + within_ns;
  int status = 0;
  pid_t got = 0;
  while ((got = waitpid(pid_, &status, __WALL | WNOHANG)) == 0) {
    if (monotonic_ns() > until) return Stop::kNever;
    sched_yield();
  }
  return stop_of(got == pid_ ? status : 0);
}

Stop TracedProcess::step() noexcept {
  int status = 0;
  if (ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) != 0) return Stop::kEnded;
  while (waitpid(pid_, &status, __WALL) < 0 && errno == EINTR) {
  }
  return stop_of(status);
}

void TracedProcess::go_on() noexcept { ptrace(PTRACE_CONT, pid_, nullptr, nullptr); }

bool TracedProcess::has_ended() noexcept {
  int status = 0;
  if (waitpid(pid_, &status, __WALL | WNOHANG) != pid_) return false;
  return stop_of(status) == Stop::kEnded;
}

int TracedProcess::descriptor(int fd) const noexcept {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd < 0) return -1;
  const int copy = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0));
  close(pidfd);
  return copy;
}

void TracedProcess::end() noexcept {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, __WALL) == pid_ && WIFSTOPPED(status)) {
  }
  pid_ = 0;
}

}  // namespace bedplate::strain
