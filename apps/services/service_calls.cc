// Compiled with exceptions (scripts/mk/flags.mk): the only file of the runtime that catches any.
#include "apps/services/service_calls.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include <cxxabi.h>

#include "platform/log.h"
#include "platform/log_limit.h"

namespace bedplate {
namespace {

constinit LogLimit main_thread_limit(5);

Error thrown(const Service& service, const char* doing, const char* what) {
  return error_while("%s: %s", service.name(), doing)
      .set_answer("it threw an exception%s%s", what[0] != '\0' ? ": " : "", what)
      .set_cure("this is a defect of the service: functions that can fail must return an error");
}

void log_uncaught(const char* what) noexcept {
  char line[512];
  const int bytes =
      std::snprintf(line, sizeof line,
                    "bedplate: an uncaught exception: %s; this is a defect: code on a "
                    "shard must catch its own exceptions\n",
                    what);
  if (bytes <= 0) return;
  const size_t line_bytes = std::min(static_cast<size_t>(bytes), sizeof line - 1);
  line[line_bytes - 1] = '\n';  // also of a truncated line
  write_last_line(line, line_bytes);
}

// The terminate handler. The stack is still that of the throw, so the record of the crash shows it.
[[noreturn]] void on_uncaught() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) std::abort();  // std::terminate() was called without an exception
  try {
    throw;
  } catch (const std::exception& exception) {
    log_uncaught(exception.what());
  } catch (...) {
    log_uncaught(type->name());
  }
  std::abort();
}

}  // namespace

HeapOwner heap_owner_of(const Service& service) noexcept {
  auto owner = heap_owner(OwnerName("heap", service.name()));
  return owner.ok() ? owner.value() : kUnnamedOwner;
}

void judge_main_thread_time(const Service& service, const char* function,
                            uint64_t took_ns) noexcept {
  if (took_ns <= kMainThreadNsMax || !main_thread_limit.try_pass("slow calls of services")) return;
  BP_LOG_WARNING(
      "%s: %s took %llu ms of the main thread: signals, drains and the supervisor waited "
      "for it; let a thread of the service wait (ServicePlan::threads)",
      service.name(), function, static_cast<unsigned long long>(took_ns / kNsPerMs));
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

void name_uncaught_exceptions() noexcept {
  if (std::get_terminate() == &__gnu_cxx::__verbose_terminate_handler) {
    std::set_terminate(&on_uncaught);
  }
}

}  // namespace bedplate
