#include "platform/thread_stack.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <new>

#include <sys/mman.h>

#include "platform/assert.h"
#include "platform/clock.h"
#include "platform/forbidden_calls.h"

namespace bedplate {
namespace {

constexpr uint64_t kGuardBytes = 4096;
constexpr uint64_t kSignalStackBytes = 32 << 10;
constexpr uint64_t kMappingBytes = kGuardBytes + kThreadStackBytes;

// The first call of the thread. It lies at the low end of the thread's own stack, which the thread
// reaches last. So a thread abandoned before it has begun uses no memory of the object.
struct Call {
  void (*function)(void*) noexcept;
  void* context;
};

}  // namespace

StackedThread::~StackedThread() {
  join();
  if (mapping_ != nullptr) BP_ASSERT(munmap(mapping_, kMappingBytes) == 0);
}

void* StackedThread::enter(void* stack) {
  const Call call = *static_cast<const Call*>(stack);
  // At the far end of the stack: a handler with SA_ONSTACK has space also when the stack is full.
  alignas(16) char signal_stack_memory[kSignalStackBytes];
  const stack_t signal_stack = {signal_stack_memory, 0, sizeof signal_stack_memory};
  stack_t before = {};
  sigaltstack(&signal_stack, &before);
  call.function(call.context);
  sigaltstack(&before, nullptr);  // the memory of the signal stack goes out of scope
  return nullptr;
}

Result<void> StackedThread::start(const char* name, void (*function)(void*) noexcept,
                                  void* context) noexcept {
  BP_ASSERT(!is_running_ && mapping_ == nullptr);
  void* mapping = mmap(nullptr, kMappingBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return error_from_errno("taking the stack of thread %s", name);
  mapping_ = mapping;
  auto* stack = static_cast<char*>(mapping) + kGuardBytes;
  if (mprotect(mapping, kGuardBytes, PROT_NONE) != 0) {
    return error_from_errno("guarding the stack of thread %s", name);
  }
  if (mlock(stack, kThreadStackBytes) != 0) {  // this faults the pages in as well
    return error_from_errno("locking the stack of thread %s", name)
        .set_cure("raise the limit: ulimit -l unlimited");
  }
  new (stack) Call{function, context};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kThreadStackBytes);
  const int outcome = pthread_create(&thread_, &attributes, &StackedThread::enter, stack);
  pthread_attr_destroy(&attributes);
  if (outcome != 0) {
    errno = outcome;
    Error error = error_from_errno("starting thread %s", name);
    if (says_forbidden(outcome)) return set_cure_of_forbidden(&error, "clone3 or clone");
    return error.set_cure("allow more threads: ulimit -u, TasksMax= of its unit, pids.max of its "
                          "control group");
  }
  is_running_ = true;
  char short_name[16];
  std::snprintf(short_name, sizeof short_name, "%s", name);
  pthread_setname_np(thread_, short_name);
  return {};
}

void StackedThread::join() noexcept {
  // A thread that joined itself would go on, and the munmap would remove the stack under it.
  if (is_running_) BP_ASSERT(pthread_join(thread_, nullptr) == 0);
  is_running_ = false;
}

bool StackedThread::join_or_leave(uint64_t patience_ns) noexcept {
  if (!is_running_) return true;
  BP_ASSERT(mapping_ != nullptr && pthread_equal(thread_, pthread_self()) == 0);
  // Not pthread_clockjoin_np: ThreadSanitizer does not know it.
  const uint64_t end_ns = monotonic_ns() + patience_ns;
  bool has_ended = pthread_tryjoin_np(thread_, nullptr) == 0;
  while (!has_ended && monotonic_ns() < end_ns) {
    const timespec pause = {0, kNsPerMs};
    nanosleep(&pause, nullptr);
    has_ended = pthread_tryjoin_np(thread_, nullptr) == 0;
  }
  if (!has_ended) {
    pthread_detach(thread_);
    mapping_ = nullptr;
  }
  is_running_ = false;
  return has_ended;
}

}  // namespace bedplate
