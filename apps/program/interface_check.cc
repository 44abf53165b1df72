#include "apps/program/interface_check.h"

namespace bedplate {

Result<void> check_interface(const char* what, CompiledAgainst against) {
  if (against.interface_number == BP_INTERFACE) return {};
  return configuration_error_while("starting the program")
      .set_answer("%s was compiled against Bedplate %u.%u.%u with interface %u, but the archive is "
                  "Bedplate %d.%d.%d with interface %d",
                  what, against.version >> 16, against.version >> 8 & 0xff, against.version & 0xff,
                  against.interface_number, BP_VERSION_MAJOR, BP_VERSION_MINOR, BP_VERSION_PATCH,
                  BP_INTERFACE)
      .set_cure("compile it again with the headers that were installed with the archive");
}

}  // namespace bedplate
