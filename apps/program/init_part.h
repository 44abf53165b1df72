// The first process of an image, if the program links libbedplate-init.a.
#pragma once

#include "apps/init/init.h"

namespace bedplate {

// nullptr: the program was linked without it.
const InitPart* init_part() noexcept;

}  // namespace bedplate
