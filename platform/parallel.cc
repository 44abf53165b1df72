#include "platform/parallel.h"

#include <algorithm>

#include <pthread.h>

namespace bedplate {
namespace {

constexpr unsigned kHelperMax = 63;

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
  while (started < wanted &&
         pthread_create(&helpers[started], nullptr, run_job, &job) == 0) {
    ++started;
  }
  run_job(&job);
  for (unsigned i = 0; i < started; ++i) pthread_join(helpers[i], nullptr);
}

}  // namespace bedplate
