// Bedplate's version as text.
#pragma once

#include "platform/version.h"

#define BP_TEXT_OF_WORDS(words) #words
#define BP_TEXT_OF(macro) BP_TEXT_OF_WORDS(macro)

namespace bedplate {

inline constexpr char kBedplateVersion[] =
    BP_TEXT_OF(BP_VERSION_MAJOR) "." BP_TEXT_OF(BP_VERSION_MINOR) "." BP_TEXT_OF(BP_VERSION_PATCH);

}  // namespace bedplate
