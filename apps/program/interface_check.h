// Refuses code that was compiled against another interface (platform/version.h).
//
// The linker has refused it before. This check is for services that come another way: a list in a
// language that reads no header, an object whose linker ignored the reference.
#pragma once

#include "platform/result.h"
#include "platform/version.h"

namespace bedplate {

// `what` was compiled `against` this. Errors (kConfiguration): this program has another interface.
Result<void> check_interface(const char* what, CompiledAgainst against);

}  // namespace bedplate
