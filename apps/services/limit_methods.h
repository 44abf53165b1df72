// The methods of a service on the control socket for its limits: NAME.limits lists them, NAME.limit
// changes some rates of one and keeps the others, NAME.unlimit ends one or all rates of one.
//
//     LimitMethods limit_methods_{{.service = "cache", ...}};             // a member
//     limit_methods_.add_to(methods);                                     // in methods()
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "apps/counters/json_text.h"
#include "apps/services/control_methods.h"
#include "apps/services/service_limits.h"

namespace bedplate {

class LimitMethods {
 public:
  // A kind of limits. A call names a limit by the parameter `name`.
  struct Kind {
    const char* name;
    const char* help;
  };
  struct Terms {
    const char* service = nullptr;
    std::span<const Kind> kinds = {};           // by ServiceLimits::Named::kind
    const ServiceLimits* limits = nullptr;      // has some, once methods are called
    const std::atomic<bool>* drains = nullptr;  // set before the service's drain ends all limits
    // Sets the rates of one of `limits`, on their loop.
    void (*change)(void* context, RequestLimit& limit, const LimitRates& rates) noexcept = nullptr;
    void* context = nullptr;
  };

  // Ownership: texts are static; all else outlives the appliance, as this object does.
  explicit LimitMethods(const Terms& terms);
  LimitMethods(const LimitMethods&) = delete;
  LimitMethods& operator=(const LimitMethods&) = delete;

  void add_to(ControlMethods& methods);

 private:
  using Named = ServiceLimits::Named;

  const Named* find(ControlCall& call) const noexcept;
  void list(ControlCall& call) noexcept;
  void set(ControlCall& call) noexcept;
  void end(ControlCall& call) noexcept;
  void change(ControlCall& there, const Named& named, const LimitRates& rates) noexcept;
  void write(JsonText& json, const Named& named) const noexcept;

  const Terms terms_;
  const std::string kinds_;  // "volume, tenant or listener"
};

}  // namespace bedplate
