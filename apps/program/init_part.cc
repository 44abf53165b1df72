#include "apps/program/init_part.h"

// init.cc defines it; a program for images asks for it (-Wl,-u; bedplate-init.pc).
extern "C" [[gnu::weak]] const bedplate::InitPart bedplate_init_part;

namespace bedplate {

const InitPart* init_part() noexcept { return &bedplate_init_part; }

}  // namespace bedplate
