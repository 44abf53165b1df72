#include "platform/parallel.h"

#include <algorithm>

#include <pthread.h>
#include <sys/mman.h>

namespace bedplate {
namespace {

constexpr unsigned kHelperMax = 63;
constexpr size_t kStackBytes = 1 << 20;  // ThreadSanitizer's minimum; only used pages are touched

struct Job {
  void (*function)(void*) noexcept;
  void* context;
};

void* run_job(void* pointer) {
  const auto* job = static_cast<const Job*>(pointer);
  job->function(job->context);
  return nullptr;
}

}  // namespace

void run_in_parallel(unsigned thread_count, void (*function)(void*) noexcept,
                     void* context) noexcept {
  Job job{function, context};
  pthread_t helpers[kHelperMax];
  unsigned started = 0;
  const unsigned wanted = std::min(thread_count - (thread_count > 0), kHelperMax);
  // Stacks of our own: libc would keep its stacks, of 8 MiB each, after the threads have ended.
  const size_t stacks_bytes = wanted * kStackBytes;
  void* stacks = MAP_FAILED;
  if (wanted > 0) {
    stacks = mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  }
  for (; started < wanted && stacks != MAP_FAILED; ++started) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, static_cast<char*>(stacks) + started * kStackBytes,
                          kStackBytes);
    const int outcome = pthread_create(&helpers[started], &attributes, run_job, &job);
    pthread_attr_destroy(&attributes);
    if (outcome != 0) break;
  }
  run_job(&job);
  for (unsigned i = 0; i < started; ++i) pthread_join(helpers[i], nullptr);
  if (stacks != MAP_FAILED) munmap(stacks, stacks_bytes);
}

}  // namespace bedplate
