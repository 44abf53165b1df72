#include "platform/environment.h"

#include <cstdlib>

namespace bedplate {

const char* environment_text(const char* name) noexcept {
  // By the kernel's word (AT_SECURE), which is given to the program with its arguments.
  return secure_getenv(name);
}

void forget_environment_text(const char* name) noexcept { unsetenv(name); }

}  // namespace bedplate
