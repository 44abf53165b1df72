#include "apps/testing/c_service.h"

#include "apps/c_interface/service_c.h"

namespace bedplate::testing {

std::unique_ptr<Service> make_service(const bp_service& service) {
  return std::make_unique<CService>(service);
}

}  // namespace bedplate::testing
