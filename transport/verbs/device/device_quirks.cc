#include "transport/verbs/device/device_quirks.h"

#include <cstdint>

namespace bedplate {
namespace {

constexpr uint32_t kSoftRoceVendor = 0xff'ffff;  // not the number of any vendor

}  // namespace

DeviceQuirks DeviceQuirks::without(const DeviceQuirks& denied) const noexcept {
  return {.reset_keeps_reads = reset_keeps_reads && !denied.reset_keeps_reads,
          .ends_without_answer = ends_without_answer && !denied.ends_without_answer,
          .hides_long_messages = hides_long_messages && !denied.hides_long_messages,
          .loses_manager = loses_manager && !denied.loses_manager,
          .ignores_window_bounds = ignores_window_bounds && !denied.ignores_window_bounds};
}

DeviceQuirks quirks_of(const ibv_device_attr& device) noexcept {
  if (device.vendor_id != kSoftRoceVendor) return {};
  return {.reset_keeps_reads = true,
          .ends_without_answer = true,
          .hides_long_messages = true,
          .loses_manager = true,
          .ignores_window_bounds = false};
}

}  // namespace bedplate
