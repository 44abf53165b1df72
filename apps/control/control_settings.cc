#include "apps/control/control_settings.h"

#include "apps/configuration/configuration_table.h"
#include "apps/configuration/read_table.h"

namespace bedplate {
namespace {

constexpr uint64_t kAskersMax = 1024;

}  // namespace

void describe(ConfigurationTable& table, ControlSettings& settings) {
  table.text("group", &settings.group, 1, 32)
      .otherwise("no other users")
      .help("A group, by name or number in /etc/group, whose users may send requests, besides "
            "root and the appliance's own user ([control.md](control.md)).");
  table.integer("max_connections", &settings.max_connections, 1, kAskersMax)
      .help("The most open connections. Their memory is planned; a further one replaces an idle "
            "one, or is refused if all are busy.");
  table.path("serial", &settings.serial, 1, 255)
      .otherwise("none: the socket only")
      .help("A serial line that also takes requests, such as `/dev/ttyS1`, from everybody with "
            "access to the line ([control.md](control.md#a-serial-line)).");
  table.integer("serial_baud", &settings.serial_baud, kSerialBaudMin, kSerialBaudMax)
      .help(std::string("Its speed: ") + kSerialBauds + ". 8 bits, no parity, one stop bit.");
  table.check([&settings](ReadTable& read) {
    if (!is_serial_baud(settings.serial_baud) && !read.was_refused("serial_baud")) {
      read.refuse_value("serial_baud",
                        std::to_string(settings.serial_baud) + " baud is not supported",
                        std::string("write ") + kSerialBauds);
    }
  });
}

}  // namespace bedplate
