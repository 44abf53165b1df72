#include "pinned_pool/memory_error.h"

#include <csignal>

#include "pinned_pool/pinned_pool.h"
#include "platform/log.h"

namespace bedplate {
namespace {

constinit struct sigaction before = {};

void on_bus_error(int number, siginfo_t* info, void* context) {
  if (const Segment* segment = process_pool().segment_of(info->si_addr); segment != nullptr) {
    const bool is_hardware = info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO;
    Error error;
    error.set_doing("using memory of %s at %p", segment->owner.text, info->si_addr);
    error.set_answer("%s", is_hardware ? "the hardware reports a memory error; what the page held "
                                         "is lost"
                                       : "the page is not there any more");
    error.set_cure("%s", is_hardware ? "restart the appliance (the kernel does not use the page "
                                       "again), and have the memory looked at"
                                     : "something took the page away: `bedplate doctor` lists the "
                                       "ways that are open");
    log_error(error);
  }
  // The handler before this one is called as the kernel would: it may know what to do about it, as
  // the guard of copies does (transport/single_copy/guarded_copy_datapath.h).
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return before.sa_handler(number);
  }
  sigaction(SIGBUS, &before, nullptr);
  raise(SIGBUS);
}

}  // namespace

void report_memory_errors() noexcept {
  struct sigaction action = {};
  action.sa_sigaction = &on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // as a handler of before may need
  struct sigaction was_there = {};
  sigaction(SIGBUS, &action, &was_there);
  if (was_there.sa_sigaction != &on_bus_error) before = was_there;
}

}  // namespace bedplate
