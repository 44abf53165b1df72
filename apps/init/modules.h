// Kernel modules: the list that a configuration needs, and the loading in the first process.
//
// The image holds exactly these and their dependencies; scripts/image/modules.py finds them when
// the image is built, so that the boot searches for nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "platform/result.h"

namespace bedplate {

// The modules that `configuration` and its `plan` name or imply, without those that they depend on,
// each once.
std::vector<std::string> needed_modules(const Configuration& configuration,
                                        const AppliancePlan& plan);

// Loads the modules whose files, in `directory`, its file `order` names, one a line, in that order.
// `command_line` is the kernel's: it may hold parameters (NAME.PARAMETER=VALUE). A module that is
// loaded already is no error. Errors: the first that does not load, with the kernel's reason; an
// error of the `optional` one (a module's name, or nothing) is only logged.
Result<void> load_modules(const std::string& directory, std::string_view command_line,
                          std::string_view optional);

}  // namespace bedplate
