#include "platform/call_stack.h"

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include <link.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include "platform/log.h"

namespace bedplate {
namespace {

constexpr unsigned kCallCountMax = 24;

struct Calls {
  uintptr_t addresses[kCallCountMax];
  unsigned count = 0;
  unsigned skipped = 0;
  uintptr_t interrupted = 0;  // leaves out the calls of the handler that interrupted this address
};

_Unwind_Reason_Code add_call(_Unwind_Context* context, void* into) {
  auto* calls = static_cast<Calls*>(into);
  int is_before_instruction = 0;
  const uintptr_t address = _Unwind_GetIPInfo(context, &is_before_instruction);
  if (address == 0) return _URC_END_OF_STACK;
  if (is_before_instruction != 0 && address == calls->interrupted) calls->count = 0;
  if (calls->skipped > 0) {
    --calls->skipped;
    return _URC_NO_REASON;
  }
  if (calls->count == kCallCountMax) return _URC_END_OF_STACK;
  // A return address lies behind its call, perhaps already in the next line or function.
  calls->addresses[calls->count++] = is_before_instruction != 0 ? address : address - 1;
  return _URC_NO_REASON;
}

// The file that an address lies in, and the address as that file was linked.
struct Origin {
  uintptr_t address = 0;
  const char* file = nullptr;
  uintptr_t offset = 0;
};

int find_origin(dl_phdr_info* info, size_t, void* wanted) {
  auto* origin = static_cast<Origin*>(wanted);
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    if (part.p_type != PT_LOAD || origin->address - begin >= part.p_memsz) continue;
    const bool is_program = info->dlpi_name == nullptr || info->dlpi_name[0] == '\0';
    origin->file = is_program ? program_invocation_name : info->dlpi_name;
    origin->offset = origin->address - info->dlpi_addr;
    return 1;
  }
  return 0;
}

void for_each_call(const Calls& calls, void (*see)(const char* line)) noexcept {
  char line[512];
  for (unsigned i = 0; i < calls.count; ++i) {
    Origin origin;
    origin.address = calls.addresses[i];
    dl_iterate_phdr(&find_origin, &origin);
    if (origin.file == nullptr) {
      std::snprintf(line, sizeof line, "  called from %#" PRIxPTR, origin.address);
    } else {
      std::snprintf(line, sizeof line, "  called from %s %#" PRIxPTR, origin.file, origin.offset);
    }
    see(line);
  }
}

void log_call(const char* line) { BP_LOG_ERROR("%s", line); }

uintptr_t interrupted_address(const ucontext_t& context) noexcept {
#if defined(__x86_64__)
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#else
  return context.uc_mcontext.pc;
#endif
}

// The address behind the call whose first instruction was interrupted.
uintptr_t return_address(const ucontext_t& context) noexcept {
#if defined(__x86_64__)
  return *reinterpret_cast<const uintptr_t*>(context.uc_mcontext.gregs[REG_RSP]);
#else
  return context.uc_mcontext.regs[30];
#endif
}

}  // namespace

void prepare_call_stack() noexcept {
  // The unwinder initializes itself by pthread_once(), which aborts if the kernel refuses futex. A
  // process that may not call it does not get far, and others say so.
  static uint32_t word = 0;
  if (syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 0) < 0) return;
  Calls calls;
  _Unwind_Backtrace(&add_call, &calls);
}

[[gnu::noinline]] void log_call_stack(unsigned skipped) noexcept {
  Calls calls;
  calls.skipped = skipped + 1;  // this function
  _Unwind_Backtrace(&add_call, &calls);
  for_each_call(calls, &log_call);
}

void for_each_interrupted_call(const ucontext_t& context, void (*see)(const char* line)) noexcept {
  Calls calls;
  calls.interrupted = interrupted_address(context);
  if (calls.interrupted == 0) {  // a call of a null pointer, from which nothing can be unwound
    calls.addresses[calls.count++] = return_address(context) - 1;
  } else {
    _Unwind_Backtrace(&add_call, &calls);
  }
  for_each_call(calls, see);
}

}  // namespace bedplate
