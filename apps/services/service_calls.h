// Calls into services: the one way by which the runtime makes them. So a service is charged for the
// memory that it allocates.
//
// From prepare() on, when the heap is there, a service runs as the owner heap:NAME, on whichever
// thread: its [[limit]] holds, and it cannot use the runtime's reserve. Its later callbacks run as
// the same owner (follow_heap_owner). During boot an exception of the service becomes an error, and
// every error names its service. The runtime itself has no exceptions; services may.
#pragma once

#include <functional>
#include <utility>

#include "alloc/heap_owner.h"
#include "apps/services/service.h"

namespace bedplate {

// The owner of what `service` allocates; nobody's, if there are no more owners.
// Threads: any. Cost: a look at each owner's name.
HeapOwner heap_owner_of(const Service& service) noexcept;

// Makes `call` in the service's name, and returns what it returns. Threads: any.
template <typename Call>
decltype(auto) in_service(const Service& service, Call&& call) {
  const HeapOwnerScope scope(heap_owner_of(service));
  return std::forward<Call>(call)();
}

// Makes `call`, in which `service` is `doing` something ("creating"). Errors: those of the call,
// their `doing` headed by the service's name; or the exception that it threw. The call runs as the
// service's owner only if the caller uses in_service(): before there is a heap, all memory is
// boot's. Threads: the main thread's.
Result<void> call_service(Service& service, const char* doing,
                          const std::function<Result<void>()>& call);

}  // namespace bedplate
