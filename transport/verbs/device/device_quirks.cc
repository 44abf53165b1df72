#include "transport/verbs/device/device_quirks.h"

#include <cstdint>

namespace bedplate {
namespace {

constexpr uint32_t kSoftRoceVendor = 0xff'ffff;  // no vendor has it

}  // namespace

DeviceQuirks quirks_of(const ibv_device_attr& device) noexcept {
  if (device.vendor_id != kSoftRoceVendor) return {};
  return {.reset_keeps_reads = true,
          .ends_without_answer = true,
          .hides_long_messages = true,
          .loses_manager = true,
          .ignores_window_bounds = false};
}

}  // namespace bedplate
