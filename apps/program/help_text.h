// The texts of --version and --help: of the whole program, and of each command. All speak of the
// product.
#pragma once

#include <string>

#include "apps/program/commands.h"

namespace bedplate {

// "logd 2.1"; "logd" if its version is not known.
std::string name_and_version();
// The line of --version: with the build, and, in a product of its own, with Bedplate's version.
std::string version_text();

// A line for each command.
std::string program_help();
// Its usage line, what it does, and its options.
std::string command_help(const Command& command);

}  // namespace bedplate
