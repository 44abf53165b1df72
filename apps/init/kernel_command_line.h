// The kernel's command line, as far as the first process reads it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bedplate {

// The value of the last NAME=VALUE of `line` with this name; nothing when there is none. Words are
// separated by blanks; a value in double quotes may hold some.
std::optional<std::string> command_line_value(std::string_view line, std::string_view name);

// The parameters of the module `name` in the command line: "a=1 b=2" from "NAME.a=1 NAME.b=2", in
// its order. - and _ are the same in a module's name.
std::string module_parameters(std::string_view line, std::string_view name);

// The name of a module as the kernel lists it, with _ for -.
std::string module_name(std::string_view text);

}  // namespace bedplate
