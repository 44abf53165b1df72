// The code of an image's first process, if the program links libbedplate-init.a.
#pragma once

#include "apps/init/init.h"

namespace bedplate {

// The functions of libbedplate-init.a; nullptr: the program was linked without the archive.
const InitPart* init_part() noexcept;

}  // namespace bedplate
