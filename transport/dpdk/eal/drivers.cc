#include "transport/dpdk/eal/drivers.h"

#include <cstddef>

namespace bedplate {

const char* dpdk_drivers() noexcept { return BP_DPDK_DRIVERS; }

bool has_dpdk_driver(std::string_view name) noexcept {
  std::string_view rest = dpdk_drivers();
  while (!rest.empty()) {
    const size_t end = rest.find(' ');
    if (rest.substr(0, end) == name) return true;
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  return false;
}

}  // namespace bedplate
