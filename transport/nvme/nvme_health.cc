#include "transport/nvme/nvme_health.h"

#include <cstdint>

#include "transport/nvme/nvme_wire.h"

namespace bedplate {
namespace {

// Reads a number of 16 bytes; one that does not fit into 8 bytes becomes the largest.
uint64_t wide_field(const std::byte* log, size_t offset) noexcept {
  return nvme::field<uint64_t>(log, offset + 8) != 0 ? ~uint64_t{0}
                                                     : nvme::field<uint64_t>(log, offset);
}

}  // namespace

void NvmeHealth::take_log(const std::byte* log, NvmeCounters& counters) noexcept {
  counters.warnings.set(nvme::field<uint8_t>(log, nvme::kWarnings));
  counters.temperature_kelvin.set(nvme::field<uint16_t>(log, nvme::kTemperature));
  counters.spare_percent.set(nvme::field<uint8_t>(log, nvme::kSpare));
  counters.used_percent.set(nvme::field<uint8_t>(log, nvme::kUsed));
  counters.read_units.set(wide_field(log, nvme::kUnitsRead));
  counters.written_units.set(wide_field(log, nvme::kUnitsWritten));
  counters.power_cycles.set(wide_field(log, nvme::kPowerCycles));
  counters.power_on_hours.set(wide_field(log, nvme::kPowerOnHours));
  counters.unsafe_shutdowns.set(wide_field(log, nvme::kUnsafeShutdowns));
  const uint64_t media_errors = wide_field(log, nvme::kMediaErrors);
  const uint64_t known = counters.media_errors.read();
  if (is_known_ && media_errors > known) counters.new_media_errors.add(media_errors - known);
  counters.media_errors.set(media_errors);
  is_known_ = true;
}

}  // namespace bedplate
