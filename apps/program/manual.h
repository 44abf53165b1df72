// The manual pages of a program, in troff, for its packages: `PROGRAM --man` and `PROGRAM keys
// --man` print them. They are made from the texts that the program has anyway, and speak of the
// product.
#pragma once

#include <string>
#include <vector>

#include "apps/boot/loaded_configuration.h"

namespace bedplate {

// PROGRAM(1): the texts of --help.
std::string program_manual();

// PROGRAM.toml(5): the keys of its configuration, in this order, by their tables.
std::string keys_manual(const std::vector<KeyDescription>& keys);

}  // namespace bedplate
