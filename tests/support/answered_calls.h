// Answers or forbids one system call in place of the kernel: for a call that would end the machine,
// needs a missing device, or is forbidden by a seccomp profile. This is permanent, so use a
// separate process (death_test.h).
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

namespace bedplate::test {

// Returns a call's result as the kernel would: a value, or -errno. `arguments`: the first three.
using Answer = long (*)(const uint64_t* arguments);
inline constinit Answer answer_of_call = nullptr;

// Filters the call `number` with `otherwise`, a SECCOMP_RET_*. Returns false if the kernel refuses.
inline bool filter_call(uint32_t number, uint32_t otherwise) {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, otherwise),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof steps / sizeof *steps, steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// From now on the call `number` fails with `error_number`, in this thread and in threads that it
// starts.
inline bool forbid_call(uint32_t number, int error_number) {
  return filter_call(number, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error_number));
}

// From now on `answer` replaces the call `number`, in this thread and in threads that it starts.
// Returns false if the kernel refuses.
inline bool answer_calls(uint32_t number, Answer answer) {
  answer_of_call = answer;
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  action.sa_sigaction = [](int, siginfo_t*, void* context) {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const uint64_t arguments[] = {static_cast<uint64_t>(registers[REG_RDI]),
                                  static_cast<uint64_t>(registers[REG_RSI]),
                                  static_cast<uint64_t>(registers[REG_RDX])};
    registers[REG_RAX] = answer_of_call(arguments);
  };
  return sigaction(SIGSYS, &action, nullptr) == 0 && filter_call(number, SECCOMP_RET_TRAP);
}

}  // namespace bedplate::test
