// Calls into services, during boot alone: an exception of the service becomes an error, and every
// error names its service. The runtime itself has no exceptions; services may. Threads: the main
// thread's.
#pragma once

#include <functional>

#include "apps/boot/service.h"

namespace bedplate {

// Makes `call`, as which `service` is `doing` something ("creating"). Errors: those of the call,
// their `doing` headed by the service's name; or what it threw.
Result<void> call_service(Service& service, const char* doing,
                          const std::function<Result<void>()>& call);

}  // namespace bedplate
