// The unit of systemd that runs the appliances of a program, for its packages: `PROGRAM --unit`
// prints it.
#pragma once

#include <string>

namespace bedplate {

// PROGRAM@.service. `path`: that of the installed program, from the root.
std::string unit_file(const std::string& path);

}  // namespace bedplate
