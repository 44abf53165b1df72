#include "pinned_pool/memory_error.h"

#include <csignal>

#include "pinned_pool/pinned_pool.h"
#include "platform/log.h"

namespace bedplate {
namespace {

const Segment* segment_of(const void* address) noexcept {
  const PinnedPool& pool = process_pool();
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(address) -
                                              pool.segment(i).address);
    if (offset < pool.segment(i).bytes) return &pool.segment(i);
  }
  return nullptr;
}

constinit struct sigaction before = {};

void on_bus_error(int, siginfo_t* info, void*) {
  if (const Segment* segment = segment_of(info->si_addr); segment != nullptr) {
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
  // The access is tried again, or the signal sent again, and meets who was here before.
  sigaction(SIGBUS, &before, nullptr);
  raise(SIGBUS);
}

}  // namespace

void report_memory_errors() noexcept {
  struct sigaction action = {};
  action.sa_sigaction = &on_bus_error;
  action.sa_flags = SA_SIGINFO;
  struct sigaction was_there = {};
  sigaction(SIGBUS, &action, &was_there);
  if (was_there.sa_sigaction != &on_bus_error) before = was_there;
}

}  // namespace bedplate
