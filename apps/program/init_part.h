// The first process of an image, where the program has it: libbedplate-init.a.
#pragma once

#include "apps/init/init.h"

namespace bedplate {

// nullptr: the program was linked without it.
const InitPart* init_part() noexcept;

}  // namespace bedplate
