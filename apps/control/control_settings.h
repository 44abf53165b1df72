// [control] of the configuration, with the check of the line's speed.
#pragma once

#include <cstdint>
#include <string>

#include "platform/serial_line.h"

namespace bedplate {

struct ControlSettings {
  std::string group;
  uint32_t max_connections = 8;
  std::string serial;
  uint32_t serial_baud = kSerialBaud;
};

class ConfigurationTable;
void describe(ConfigurationTable& table, ControlSettings& settings);

}  // namespace bedplate
