#include "pinned_pool/boot_segment.h"

#include <cinttypes>
#include <cstdlib>

#include "platform/log.h"
#include "platform/sanitizer.h"
#include "platform/units.h"

extern "C" __attribute__((weak)) const uint64_t bedplate_boot_bytes = 16 << 20;

namespace bedplate {
namespace {

constexpr const char* kVariable = "BEDPLATE_BOOT_BYTES";

bool is_boot_size(uint64_t bytes) noexcept {
  return bytes >= kBootBytesMin && bytes <= kRegionBytes;
}

uint64_t bytes_of_variable(const char* text) noexcept {
  const auto parsed = parse_bytes(text);
  if (parsed.has_value() && is_boot_size(*parsed)) return *parsed;
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("reading the environment variable %s", kVariable);
  error.set_answer("\"%s\" is not a size of segment 0", text);
  error.set_cure("write a size from 8 MiB to 1 GiB, such as \"16 MiB\", or unset it");
  stop_with(error);
}

uint64_t linked_bytes() noexcept {
  // The linker may replace a weak constant: the compiler must not fold its value.
  const volatile uint64_t& linked = bedplate_boot_bytes;
  const uint64_t bytes = linked;
  if (is_boot_size(bytes)) return bytes;
  Error error;
  error.kind = ErrorKind::kConfiguration;
  error.set_doing("reading the program's constant bedplate_boot_bytes");
  error.set_answer("%" PRIu64 " is not a size of segment 0", bytes);
  error.set_cure("define it from %" PRIu64 " (8 MiB) to %" PRIu64 " (1 GiB) and link anew, or set "
                 "%s",
                 kBootBytesMin, kRegionBytes, kVariable);
  stop_with(error);
}

void refuse_unfit_sanitizer() noexcept {
  const Sanitizer sanitizer = linked_sanitizer();
  if (sanitizer.name.empty() || sanitizer.leaves_pool_range) return;
  Error error;
  error.set_doing("making segment 0");
  error.set_answer("%s has the pool's addresses for itself", sanitizer.name.data());
  error.set_cure("link it with AddressSanitizer instead, or with the libraries of `make MODE=tsan` "
                 "for ThreadSanitizer (docs/debugging.md)");
  stop_with(error);
}

}  // namespace

uint64_t boot_segment_bytes() noexcept {
  const char* text = getenv(kVariable);
  return align_up(text != nullptr ? bytes_of_variable(text) : linked_bytes(),
                  kBootBytesGranularity);
}

Segment& boot_segment() noexcept {
  PinnedPool& pool = process_pool();
  if (pool.segment_count() == 0) {
    refuse_unfit_sanitizer();
    auto created = pool.create_segment("boot", boot_segment_bytes(), PageSize::k4KiB, 1);
    if (!created.ok()) stop_with(created.error());
  }
  return pool.segment(0);
}

}  // namespace bedplate
