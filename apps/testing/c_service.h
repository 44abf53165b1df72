// A service in C (bedplate_service.h), for a TestAppliance: its unit test is a C++ program.
#pragma once

#include <memory>

#include "apps/c_interface/bedplate_service.h"
#include "apps/services/service.h"

namespace bedplate::testing {

// `service` is copied; everything that it points to outlives the result.
std::unique_ptr<Service> make_service(const bp_service& service);

}  // namespace bedplate::testing
