// The texts of --help: of the whole program, and of each command.
#pragma once

#include <string>

#include "apps/program/commands.h"

namespace bedplate {

// A line for each command.
std::string program_help();
// Its usage line, what it does, and its options.
std::string command_help(const Command& command);

}  // namespace bedplate
