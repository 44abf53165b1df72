// Calls into services. The runtime makes each call that may allocate or fail by these functions, so
// a service is charged for the memory that it allocates.
//
// From prepare() on, when the heap exists, a service runs as the owner heap:NAME, on any thread:
// its [[limit]] holds, and it cannot use the runtime's reserve. Its later callbacks run as the same
// owner (follow_heap_owner). During boot an exception of the service becomes an error, and every
// error names its service. The runtime itself throws no exceptions; services may throw.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "alloc/heap_owner.h"
#include "apps/services/service.h"
#include "platform/clock.h"
#include "platform/units.h"

namespace bedplate {

// The owner of memory that `service` allocates; kUnnamedOwner if the table of owners is full.
// Threads: any. Cost: a look at each owner's name.
HeapOwner heap_owner_of(const Service& service) noexcept;

// Makes `call` as the service's owner, and returns its result. Threads: any.
template <typename Call>
decltype(auto) in_service(const Service& service, Call&& call) {
  const HeapOwnerScope scope(heap_owner_of(service));
  return std::forward<Call>(call)();
}

// A call on the main thread that takes longer is logged with its service: signals, drains and the
// supervisor wait for the main thread.
inline constexpr uint64_t kMainThreadNsMax = kNsPerSecond;

// Logs that `function` of `service` ("tick()") has taken `took_ns` of the main thread, if that is
// too long; at most five times in ten seconds. Threads: the main thread, as below.
void judge_main_thread_time(const Service& service, const char* function,
                            uint64_t took_ns) noexcept;

// Makes `call`, which calls `function` of `service`, as in_service() does, while the shards run;
// and judges its time.
template <typename Call>
decltype(auto) in_service_on_main_thread(const Service& service, const char* function,
                                         Call&& call) {
  struct Timing {
    const Service& service;
    const char* function;
    const uint64_t begin_ns = monotonic_ns();
    ~Timing() { judge_main_thread_time(service, function, monotonic_ns() - begin_ns); }
  };
  const Timing timing{service, function};
  return in_service(service, std::forward<Call>(call));
}

// Makes `call`, in which `service` is `doing` something ("creating"). Errors: those of the call,
// with the service's name before their `doing`; an exception that the call threw. The call runs as
// the service's owner only if the caller sees to it, with in_service() or a HeapOwnerScope: before
// there is a heap, the owner boot has all memory. Threads: the main thread.
Result<void> call_service(Service& service, const char* doing,
                          const std::function<Result<void>()>& call);

// From now on an exception that nothing catches, such as one thrown on a shard, is logged with its
// text before the process aborts: it is the reason in the record of the crash. A program's own
// terminate handler stays. Threads: the main thread, before others start.
void name_uncaught_exceptions() noexcept;

}  // namespace bedplate
