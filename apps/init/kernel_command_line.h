// The parts of the kernel's command line that the first process reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace bedplate {

// The value of the last NAME=VALUE of `line` with this name; nothing: no such word. Blanks separate
// words; a value, or a whole word, in double quotes may contain blanks. The result has no quotes.
std::optional<std::string> command_line_value(std::string_view line, std::string_view name);

// The parameters of the module `name` in the command line: "a=1 b=2" from "NAME.a=1 NAME.b=2", in
// their order, with their quotes. - and _ are equal in a module's name.
std::string module_parameters(std::string_view line, std::string_view name);

// The name of a module in the kernel's spelling, with _ for -.
std::string module_name(std::string_view text);

}  // namespace bedplate
