#include "pinned_pool/boot_segment.h"

#include <cstdlib>

#include "platform/log.h"
#include "platform/units.h"

extern "C" __attribute__((weak)) const uint64_t bedplate_boot_bytes = 16 << 20;

namespace bedplate {
namespace {

constexpr const char* kVariable = "BEDPLATE_BOOT_BYTES";

}  // namespace

uint64_t boot_segment_bytes() noexcept {
  // The linker may replace a weak constant: the compiler must not fold its value.
  const volatile uint64_t& linked_bytes = bedplate_boot_bytes;
  uint64_t bytes = linked_bytes;
  if (const char* text = getenv(kVariable); text != nullptr) {
    const auto parsed = parse_bytes(text);
    if (!parsed.has_value() || *parsed < kBootBytesMin || *parsed > kRegionBytes) {
      Error error;
      error.kind = ErrorKind::kConfiguration;
      error.set_doing("reading the environment variable %s", kVariable);
      error.set_answer("\"%s\" is not a size of segment 0", text);
      error.set_cure("write a size from 8 MiB to 1 GiB, such as \"16 MiB\", or unset it");
      stop_with(error);
    }
    bytes = *parsed;
  }
  return align_up(bytes, kBootBytesGranularity);
}

Segment& boot_segment() noexcept {
  PinnedPool& pool = process_pool();
  if (pool.segment_count() == 0) {
    auto created = pool.create_segment("boot", boot_segment_bytes(), PageSize::k4KiB, 1);
    if (!created.ok()) stop_with(created.error());
  }
  return pool.segment(0);
}

}  // namespace bedplate
