#include "platform/environment.h"

#include <cstdlib>

namespace bedplate {

const char* environment_text(const char* name) noexcept {
  // secure_getenv obeys AT_SECURE, which the kernel passes to the program.
  return secure_getenv(name);
}

void forget_environment_text(const char* name) noexcept { unsetenv(name); }

}  // namespace bedplate
