// The product that this program is: a program of services has a name and a version of its own, any
// other program is Bedplate.
//
// The name is also the command of the program. It begins the lines of the log, stands in cures and
// helps, and names the default runtime directory, /run/NAME.
#pragma once

#include <string>
#include <string_view>

#include "platform/version.h"

namespace bedplate {

// Texts: static.
struct Product {
  const char* name = "bedplate";  // is_product_name()
  const char* version = "";       // any text; empty: not known
  // A few words that describe it, for its manual page: "a store of logs".
  const char* summary = "appliances in a pool of pinned memory";
};

// Threads: any, also in signal handlers.
const Product& product() noexcept;

// Sets the product of this process. `product` is copied, but not its texts. Requires:
// is_product_name(product.name). Threads: the main thread, before others start.
void set_product(const Product& product) noexcept;

// Whether `name` has 1 to 31 characters of a-z, 0-9 and -, and begins with a letter: file names and
// units contain it.
bool is_product_name(std::string_view name) noexcept;

// The default runtime directory of its appliances: "/run/NAME".
std::string usual_runtime_directory();

// `text` with the product's name in place of each word "PROGRAM".
std::string with_product_name(std::string_view text);

}  // namespace bedplate
