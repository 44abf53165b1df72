// Kernel modules: the list that a configuration needs, and the loading in the first process.
//
// The image contains exactly these modules and their dependencies; scripts/image/modules.py finds
// them when the image is built, so that the boot need not search.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/configuration/configuration.h"
#include "platform/result.h"

namespace bedplate {

// The modules that `configuration` and its `plan` name or imply, without their dependencies, each
// once.
std::vector<std::string> needed_modules(const Configuration& configuration,
                                        const AppliancePlan& plan);

// Loads modules from `directory`: its file `order` names their files, one a line, in order.
// `command_line` is the kernel's: it may have parameters (NAME.PARAMETER=VALUE). A module that is
// loaded already is no error. Errors: `order` cannot be read; the first module that does not
// load, with the kernel's reason. If `optional` (a module's name, or empty) does not load, it only
// logs that.
Result<void> load_modules(const std::string& directory, std::string_view command_line,
                          std::string_view optional);

}  // namespace bedplate
