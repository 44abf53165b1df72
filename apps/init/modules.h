// Kernel modules: which a configuration needs, and how the first process loads them.
//
// The image holds exactly these and what they depend on; scripts/image/modules.py works that out
// when the image is built, so that nothing is searched for at boot.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/boot/appliance_plan.h"
#include "apps/boot/configuration.h"
#include "platform/result.h"

namespace bedplate {

// The modules that `configuration` and its `plan` name or imply, without those that they depend on,
// each once.
std::vector<std::string> needed_modules(const Configuration& configuration,
                                        const AppliancePlan& plan);

// Loads the modules whose files, in `directory`, its file `order` names, one a line, in that order.
// `command_line` is the kernel's: it may hold parameters (NAME.PARAMETER=VALUE). A module that is
// loaded already is no error. Errors: the first that does not load, with the kernel's reason; where
// it is `optional` (a module's name, or nothing), that is a line in the log.
Result<void> load_modules(const std::string& directory, std::string_view command_line,
                          std::string_view optional);

}  // namespace bedplate
