// Words of the user in a configuration's messages: quotes them, and guesses the meant word if one
// is misspelt. Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace bedplate {

// A value of the file in quotes, cut off before a message becomes unreadable.
std::string quoted(std::string_view text);

// Whether `unknown` is most likely `known` with a typing error or two.
bool resembles(std::string_view unknown, std::string_view known);

}  // namespace bedplate
