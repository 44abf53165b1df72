// The limits of a service, as its operators see them: by kind and name. The service makes them, and
// keeps them as long as it runs; only their rates change (limit_methods.h).
//
// Threads: the shard of the limits; find() and all(): any, once all are added. add() allocates.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "transport/loop/request_limit_datapath.h"

namespace bedplate {

class ServiceLimits {
 public:
  struct Named {
    uint8_t kind;  // an index into the service's kinds of limits (LimitMethods::Terms)
    std::string_view name;
    RequestLimit& limit;
  };

  // Requires: the name is unique for its kind; the limit is on the same loop as all others.
  // Ownership: name and limit outlive this object.
  void add(uint8_t kind, std::string_view name, RequestLimit& limit);

  // nullptr: there is none.
  RequestLimit* find(uint8_t kind, std::string_view name) const noexcept;
  const std::vector<Named>& all() const noexcept { return all_; }

  // Whether any limit has a rate. If not, nothing waits.
  bool are_on() const noexcept;
  // Ends all limits, and lets all requests go that wait.
  void end() noexcept;

 private:
  std::vector<Named> all_;
};

}  // namespace bedplate
