#include "platform/random_bytes.h"

#include <sys/random.h>

#include "platform/assert.h"
#include "platform/forbidden_calls.h"

namespace bedplate {

Result<void> draw_bytes(std::span<std::byte> bytes) noexcept {
  BP_ASSERT(bytes.size() <= 256);
  if (getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) return {};
  Error error = error_from_errno("asking the kernel for random bytes");
  return set_cure_of_forbidden(&error, "getrandom");
}

}  // namespace bedplate
