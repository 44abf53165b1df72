#include "tests/support/datapath_law.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cxxabi.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "platform/assert.h"
#include "platform/call_stack.h"
#include "platform/log.h"

namespace bedplate::test {

#if BP_SANITIZED

const char* why_no_law() noexcept { return "malloc and locks are the sanitizer's in this build"; }
LawWatch::LawWatch(Permit) noexcept {}
uint32_t LawWatch::end() noexcept { return 0; }
void AllocationWatch::begin() noexcept {}
void AllocationWatch::end() noexcept {}

#else

}  // namespace bedplate::test

// 1 while the thread is watched, else 0. The traps and the kernel read it: 1 and 0 are the kernel's
// SYSCALL_DISPATCH_FILTER_BLOCK and _ALLOW.
extern "C" {
__thread volatile char bedplate_is_watched = 0;
// Whether the call is to be made. `argument`: the call's first argument.
bool bedplate_trapped(const char* name, const void* argument) noexcept;
}

// The trap for calls of NAME. While the thread is watched, the trap first calls bedplate_trapped.
// Then it jumps to the real function, or returns nullptr if the answer was false. It changes no
// argument in registers or on the stack, so it fits any function.
#define BP_TRAP(name)                                \
  asm(".text\n"                                      \
      ".globl __wrap_" #name "\n"                    \
      ".type __wrap_" #name ", @function\n"          \
      "__wrap_" #name ":\n"                          \
      "  .cfi_startproc\n"                           \
      "  cmpb $0, %fs:bedplate_is_watched@tpoff\n"   \
      "  je 1f\n"                                    \
      "  leaq 2f(%rip), %r11\n"                      \
      "  call bedplate_tell_trapped\n"               \
      "  testl %r11d, %r11d\n"                       \
      "  jne 1f\n"                                   \
      "  xorl %eax, %eax\n"                          \
      "  ret\n"                                      \
      "1: jmp __real_" #name "\n"                    \
      "  .cfi_endproc\n"                             \
      ".size __wrap_" #name ", .-__wrap_" #name "\n" \
      ".section .rodata\n"                           \
      "2: .asciz \"" #name "\"\n"                    \
      ".text\n");
#include "tests/support/datapath_law_names.inc"  // NOLINT: code
#undef BP_TRAP

// Preserves all registers that may hold arguments. %r11 holds the name, and then the answer.
asm(R"(
.text
.type bedplate_tell_trapped, @function
bedplate_tell_trapped:
  .cfi_startproc
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $192, %rsp
  andq $-16, %rsp
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %rax, 48(%rsp)
  movups %xmm0, 64(%rsp)
  movups %xmm1, 80(%rsp)
  movups %xmm2, 96(%rsp)
  movups %xmm3, 112(%rsp)
  movups %xmm4, 128(%rsp)
  movups %xmm5, 144(%rsp)
  movups %xmm6, 160(%rsp)
  movups %xmm7, 176(%rsp)
  movq %rdi, %rsi
  movq %r11, %rdi
  call bedplate_trapped
  movzbl %al, %r11d
  movq 0(%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %rax
  movups 64(%rsp), %xmm0
  movups 80(%rsp), %xmm1
  movups 96(%rsp), %xmm2
  movups 112(%rsp), %xmm3
  movups 128(%rsp), %xmm4
  movups 144(%rsp), %xmm5
  movups 160(%rsp), %xmm6
  movups 176(%rsp), %xmm7
  leave
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
.size bedplate_tell_trapped, .-bedplate_tell_trapped
)");

namespace bedplate::test {
namespace {

constexpr int kUserDispatch = 2;  // SYS_USER_DISPATCH of <asm-generic/siginfo.h>
// The most breaches that a watch reports, so that a loop of breaches does not flood the log.
constexpr uint32_t kToldMax = 5;

struct Watched {
  uint32_t breach_count = 0;
  Permit permit = Permit::kWaking;
};
thread_local Watched watched;
thread_local AllocationWatch* allocations = nullptr;

struct NamedCall {
  long number;
  const char* name;
};
constexpr NamedCall kNamedCalls[] = {
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_close, "close"},
    {SYS_newfstatat, "newfstatat"},
    {SYS_poll, "poll"},
    {SYS_mmap, "mmap"},
    {SYS_mprotect, "mprotect"},
    {SYS_munmap, "munmap"},
    {SYS_brk, "brk"},
    {SYS_ioctl, "ioctl"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_madvise, "madvise"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_sendto, "sendto"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_sendmmsg, "sendmmsg"},
    {SYS_recvmmsg, "recvmmsg"},
    {SYS_getsockopt, "getsockopt"},
    {SYS_setsockopt, "setsockopt"},
    {SYS_shutdown, "shutdown"},
    {SYS_clone, "clone"},
    {SYS_clone3, "clone3"},
    {SYS_gettid, "gettid"},
    {SYS_futex, "futex"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_epoll_ctl, "epoll_ctl"},
    {SYS_openat, "openat"},
    {SYS_process_vm_readv, "process_vm_readv"},
    {SYS_process_vm_writev, "process_vm_writev"},
    {SYS_membarrier, "membarrier"},
    {SYS_pidfd_open, "pidfd_open"},
    {SYS_io_uring_enter, "io_uring_enter"},
};

const char* name_of(long number) noexcept {
  for (const NamedCall& call : kNamedCalls) {
    if (call.number == number) return call.name;
  }
  return "unistd_64.h has its name";
}

// Whether /proc's name of the descriptor's file begins with `begin`.
bool is_file_of(int fd, const char* begin) noexcept {
  char path[64];
  char target[128] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return readlink(path, target, sizeof target - 1) > 0 &&
         std::strncmp(target, begin, std::strlen(begin)) == 0;
}

bool has_permit(Permit one) noexcept {
  return (static_cast<uint32_t>(watched.permit) & static_cast<uint32_t>(one)) != 0;
}

// Whether the call polls one pidfd without waiting, to check whether its process has ended.
bool looks_at_a_pidfd(const long* arguments) noexcept {
  const auto* looked_at = reinterpret_cast<const pollfd*>(arguments[0]);
  return arguments[1] == 1 && static_cast<int>(arguments[2]) == 0 &&
         is_file_of(looked_at->fd, "anon_inode:[pidfd]");
}

bool is_lawful(long number, const long* arguments) noexcept {
  const auto fd = static_cast<int>(arguments[0]);
  switch (number) {
    case SYS_futex: return (arguments[1] & FUTEX_CMD_MASK) == FUTEX_WAKE;
    case SYS_read:
    case SYS_write:
      if (arguments[2] == sizeof(uint64_t) && is_file_of(fd, "anon_inode:[eventfd]")) return true;
      return number == SYS_write && has_permit(Permit::kDriver) &&
             is_file_of(fd, "/dev/infiniband/uverbs");
    case SYS_io_uring_enter: return has_permit(Permit::kRing);
    case SYS_epoll_wait: return has_permit(Permit::kEpoll);
    case SYS_epoll_ctl: return has_permit(Permit::kWatches);
    case SYS_recvmsg:
      return has_permit(Permit::kStreams) ||
             (has_permit(Permit::kDatagramErrors) && (arguments[2] & MSG_ERRQUEUE) != 0);
    case SYS_sendmsg: return has_permit(Permit::kStreams);
    case SYS_recvmmsg:
    case SYS_sendmmsg: return has_permit(Permit::kDatagrams);
    case SYS_getsockopt:
      return has_permit(Permit::kDatagramErrors) && static_cast<int>(arguments[1]) == SOL_SOCKET &&
             static_cast<int>(arguments[2]) == SO_ERROR;
    case SYS_process_vm_readv:
    case SYS_process_vm_writev: return has_permit(Permit::kSingleCopy);
    case SYS_poll: return has_permit(Permit::kSingleCopy) && looks_at_a_pidfd(arguments);
    // The vDSO makes this call if it cannot read the machine's clock itself.
    case SYS_clock_gettime: return true;
    default: return false;
  }
}

long make_system_call(long number, const long* arguments) noexcept {
  long result = number;
  register long r10 asm("r10") = arguments[3];
  register long r8 asm("r8") = arguments[4];
  register long r9 asm("r9") = arguments[5];
  asm volatile("syscall"
               : "+a"(result)
               : "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

// Whether the call makes a process. Such calls are refused: the child would run on the handler's
// stack.
bool makes_a_process(long number) noexcept {
  return number == SYS_clone || number == SYS_clone3 || number == SYS_fork || number == SYS_vfork;
}

void see_system_call(int, siginfo_t* info, void* context) noexcept {
  bedplate_is_watched = 0;
  BP_ASSERT(info->si_code == kUserDispatch);
  const int errno_before = errno;
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long arguments[] = {
      static_cast<long>(registers[REG_RDI]), static_cast<long>(registers[REG_RSI]),
      static_cast<long>(registers[REG_RDX]), static_cast<long>(registers[REG_R10]),
      static_cast<long>(registers[REG_R8]),  static_cast<long>(registers[REG_R9])};
  const long number = info->si_syscall;
  if (!is_lawful(number, arguments) && ++watched.breach_count <= kToldMax) {
    BP_LOG_ERROR("the data path makes system call %ld (%s)", number, name_of(number));
    log_call_stack(2);
  }
  registers[REG_RAX] = makes_a_process(number) ? -EPERM : make_system_call(number, arguments);
  errno = errno_before;
  bedplate_is_watched = 1;
}

// The kernel's form of struct sigaction. `restorer` is the address of the code that ends a handler,
// which no header declares.
struct KernelAction {
  void (*handler)(int) = nullptr;
  unsigned long flags = 0;
  uintptr_t restorer = 0;
  uint64_t mask = 0;
};

// A handler ends with a system call, too (sigreturn). The kernel lets this call pass because of its
// address. [__restore_rt of glibc: two instructions]
constexpr unsigned long kRestorerBytes = 16;

bool set_dispatch(bool is_on) noexcept {
  if (!is_on) return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0) == 0;
  struct sigaction action = {};
  action.sa_sigaction = &see_system_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  KernelAction kept;
  if (syscall(SYS_rt_sigaction, SIGSYS, nullptr, &kept, sizeof kept.mask) != 0) return false;
  return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, kept.restorer, kRestorerBytes,
               &bedplate_is_watched) == 0;
}

}  // namespace

const char* why_no_law() noexcept {
  static const bool has_dispatch = set_dispatch(true) && set_dispatch(false);
  return has_dispatch ? nullptr : "this kernel does not send system calls back (Linux 5.11)";
}

LawWatch::LawWatch(Permit permit) noexcept {
  BP_ASSERT(bedplate_is_watched == 0);
  watched = {.breach_count = 0, .permit = permit};
  BP_ASSERT(set_dispatch(true));
  bedplate_is_watched = 1;
}

uint32_t LawWatch::end() noexcept {
  if (!is_on_) return breach_count_;
  bedplate_is_watched = 0;
  is_on_ = false;
  breach_count_ = watched.breach_count;
  BP_ASSERT(set_dispatch(false));
  return breach_count_;
}

void AllocationWatch::begin() noexcept {
  BP_ASSERT(bedplate_is_watched == 0);
  allocations = this;
  bedplate_is_watched = 1;
}

void AllocationWatch::end() noexcept {
  bedplate_is_watched = 0;
  allocations = nullptr;
}

bool AllocationWatch::look_at(const char* name, const void* argument) noexcept {
  if (std::strcmp(name, "free") == 0 && argument != nullptr) --held_count_;
  if (std::strcmp(name, "malloc") != 0) return true;
  if (allocation_count_++ == refused_index_) return false;
  ++held_count_;
  return true;
}

}  // namespace bedplate::test

bool bedplate_trapped(const char* name, const void* argument) noexcept {
  using namespace bedplate;
  using namespace bedplate::test;
  if (allocations != nullptr) {
    const bool is_granted = allocations->look_at(name, argument);
    if (!is_granted) errno = ENOMEM;
    return is_granted;
  }
  bedplate_is_watched = 0;
  const int errno_before = errno;
  const bool is_lawful_here =
      (has_permit(Permit::kDriver) && std::strcmp(name, "pthread_spin_lock") == 0) ||
      (has_permit(Permit::kLibrary) && std::strcmp(name, "pthread_once") == 0);
  if (!is_lawful_here && ++watched.breach_count <= kToldMax) {
    int status = 0;
    char* readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    BP_LOG_ERROR("the data path calls %s", readable != nullptr ? readable : name);
    std::free(readable);
    log_call_stack(2);
  }
  errno = errno_before;
  bedplate_is_watched = 1;
  return true;
}

namespace bedplate::test {

#endif

}  // namespace bedplate::test
