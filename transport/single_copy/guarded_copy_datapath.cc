#include "transport/single_copy/guarded_copy_datapath.h"

#include <csignal>

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "platform/assert.h"

// One instruction does the copy. While it runs, rcx counts the bytes left, and a fault leaves the
// registers as they were at that byte: the handler only has to continue after the instruction.
asm(R"(
    .text
    .p2align 4
    .globl bedplate_guarded_copy
    .hidden bedplate_guarded_copy, bedplate_guarded_copy_moves, bedplate_guarded_copy_moved
    .globl bedplate_guarded_copy_moves, bedplate_guarded_copy_moved
    .type bedplate_guarded_copy, @function
bedplate_guarded_copy:
    .cfi_startproc
    movq %rdx, %rcx
bedplate_guarded_copy_moves:
    rep movsb
bedplate_guarded_copy_moved:
    movq %rcx, %rax
    ret
    .cfi_endproc
    .size bedplate_guarded_copy, . - bedplate_guarded_copy
)");

extern "C" {
// Returns how many bytes are left.
uint64_t bedplate_guarded_copy(void* to, const void* from, uint64_t bytes) noexcept;
extern const char bedplate_guarded_copy_moves[];
extern const char bedplate_guarded_copy_moved[];
}

namespace bedplate {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS};
constinit struct sigaction before[2] = {};
constinit bool is_installed = false;

void on_fault(int signal, siginfo_t* info, void* context) noexcept {
  greg_t& next = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  const bool is_fault = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
  if (is_fault && next == reinterpret_cast<greg_t>(bedplate_guarded_copy_moves)) {
    next = reinterpret_cast<greg_t>(bedplate_guarded_copy_moved);
    return;
  }
  // Not a fault of the copy: act as the kernel would if this handler were not installed.
  const struct sigaction& previous = before[signal == kSignals[0] ? 0 : 1];
  const bool is_function = previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN;
  if (is_function && (previous.sa_flags & SA_RESETHAND) == 0) {
    if ((previous.sa_flags & SA_SIGINFO) == 0) return previous.sa_handler(signal);
    return previous.sa_sigaction(signal, info, context);
  }
  if (previous.sa_handler == SIG_IGN && !is_fault) return;
  // The process ends, or the previous handler serves this one signal. A fault happens again on
  // return; a signal that somebody sent is sent again unchanged.
  sigaction(signal, &previous, nullptr);
  if (!is_fault) syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, info);
}

}  // namespace

Result<void> install_copy_guard() noexcept {
  if (is_installed) return {};
  for (int i = 0; i < 2; ++i) {
    if (sigaction(kSignals[i], nullptr, &before[i]) != 0) {
      return error_from_errno("asking for the handler of signal %d", kSignals[i]);
    }
    // The previous handler runs with the signals blocked that it wants blocked.
    struct sigaction action = before[i];
    action.sa_sigaction = &on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before[i].sa_flags & SA_NODEFER);
    if (sigaction(kSignals[i], &action, nullptr) != 0) {
      return error_from_errno("installing the handler of signal %d", kSignals[i]);
    }
  }
  is_installed = true;
  return {};
}

uint64_t guarded_copy(void* to, const void* from, uint64_t bytes) noexcept {
  BP_DCHECK(is_installed);
  const uint64_t left_bytes = bedplate_guarded_copy(to, from, bytes);
  BP_DCHECK(left_bytes <= bytes && "a fault has changed what was counted");
  return bytes - left_bytes;
}

}  // namespace bedplate
