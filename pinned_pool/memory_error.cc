#include "pinned_pool/memory_error.h"

#include <atomic>
#include <csignal>
#include <cstddef>

#include "pinned_pool/pinned_pool.h"
#include "platform/log.h"
#include "platform/product.h"

namespace bedplate {
namespace {

constinit struct sigaction before = {};

struct MappedFile {
  std::atomic<const char*> path{nullptr};  // nullptr: the slot is free
  std::atomic<const std::byte*> begin{nullptr};
  std::atomic<uint64_t> bytes{0};
};
constinit MappedFile mapped_files[4];

// The recorded file that is mapped at `address`; nullptr: none.
const char* mapped_file_at(const void* address) noexcept {
  for (const MappedFile& file : mapped_files) {
    const char* path = file.path.load(std::memory_order_acquire);
    const auto begin = reinterpret_cast<uintptr_t>(file.begin.load(std::memory_order_relaxed));
    const uintptr_t offset_bytes = reinterpret_cast<uintptr_t>(address) - begin;
    if (path != nullptr && offset_bytes < file.bytes.load(std::memory_order_relaxed)) return path;
  }
  return nullptr;
}

void on_bus_error(int number, siginfo_t* info, void* context) {
  if (const Segment* segment = process_pool().segment_of(info->si_addr); segment != nullptr) {
    const bool is_hardware = info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO;
    Error error = error_while("using memory of %s at %p", segment->owner.text, info->si_addr);
    if (is_hardware) {
      error.set_answer("the hardware reports a memory error; what the page held is lost");
      error.set_cure("restart the appliance (the kernel does not use the page again), and test the "
                     "memory");
    } else {
      error.set_answer("the page is no longer there");
      error.set_cure("find what removed the page: `%s doctor` lists the methods that are possible",
                     product().name);
    }
    log_error(error);
  } else if (const char* path = mapped_file_at(info->si_addr); path != nullptr) {
    log_error(error_while("using the file %s, which is mapped at %p", path, info->si_addr)
                  .set_answer("another process has truncated it")
                  .set_cure("find which one writes to it, and start this one again"));
  }
  // Calls the previous handler as the kernel would: it may handle the error, as the guard of copies
  // does (transport/single_copy/guarded_copy_datapath.h).
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    return before.sa_handler(number);
  }
  sigaction(SIGBUS, &before, nullptr);
  raise(SIGBUS);
}

}  // namespace

void name_mapped_file(const void* begin, uint64_t bytes, const char* path) noexcept {
  for (MappedFile& file : mapped_files) {
    const std::byte* none = nullptr;
    if (!file.begin.compare_exchange_strong(none, static_cast<const std::byte*>(begin))) continue;
    file.bytes.store(bytes, std::memory_order_relaxed);
    file.path.store(path, std::memory_order_release);  // pairs with mapped_file_at
    return;
  }
}

void forget_mapped_file(const void* begin) noexcept {
  for (MappedFile& file : mapped_files) {
    if (file.begin.load(std::memory_order_relaxed) != begin) continue;
    file.path.store(nullptr, std::memory_order_relaxed);
    file.begin.store(nullptr, std::memory_order_release);
  }
}

void report_memory_errors() noexcept {
  struct sigaction was_there = {};
  sigaction(SIGBUS, nullptr, &was_there);
  if (was_there.sa_sigaction == &on_bus_error) return;
  before = was_there;
  // The previous handler runs with the signals blocked that it wants blocked. Without one SIGBUS is
  // blocked, too: while a handler has SA_NODEFER, the heap takes no memory back from idle threads
  // (alloc/thread_heaps.h).
  struct sigaction action = before;
  action.sa_sigaction = &on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & SA_NODEFER);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace bedplate
