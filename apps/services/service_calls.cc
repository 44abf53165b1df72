// Compiled with exceptions (scripts/mk/flags.mk): the only file of the runtime that catches any.
#include "apps/services/service_calls.h"

#include <exception>
#include <string>

namespace bedplate {
namespace {

Error thrown(const Service& service, const char* doing, const char* what) {
  return error_while("%s: %s", service.name(), doing)
      .set_answer("it threw an exception%s%s", what[0] != '\0' ? ": " : "", what)
      .set_cure("this is a defect of the service: functions that can fail must return an error");
}

}  // namespace

HeapOwner heap_owner_of(const Service& service) noexcept {
  auto owner = heap_owner(OwnerName("heap", service.name()));
  return owner.ok() ? owner.value() : kUnnamedOwner;
}

Result<void> call_service(Service& service, const char* doing,
                          const std::function<Result<void>()>& call) {
  try {
    auto outcome = call();
    if (outcome.ok()) return outcome;
    Error error = outcome.error();
    const std::string own = error.doing;
    const std::string prefix = std::string(service.name()) + ": ";
    if (!own.starts_with(prefix)) error.set_doing("%s%s", prefix.c_str(), own.c_str());
    return error;
  } catch (const std::exception& exception) {
    return thrown(service, doing, exception.what());
  } catch (...) {
    return thrown(service, doing, "");
  }
}

}  // namespace bedplate
