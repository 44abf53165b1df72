#include "pinned_pool/boot_segment.h"

#include <algorithm>
#include <cinttypes>

#include "pinned_pool/fork_rule.h"
#include "pinned_pool/take_error.h"
#include "platform/environment.h"
#include "platform/log.h"
#include "platform/sanitizer.h"
#include "platform/units.h"

extern "C" __attribute__((weak)) const uint64_t bedplate_boot_bytes = 16 << 20;
extern "C" __attribute__((weak)) const uint64_t bedplate_boot_page_bytes = 4 << 10;
// 1 in a program whose preflight reports the limit of locked memory (apps/program/program.cc).
extern "C" __attribute__((weak)) const uint64_t bedplate_has_preflight = 0;

namespace bedplate {
namespace {

// A setting, from the environment or else from the program.
struct Setting {
  const char* variable;
  const char* constant;
  // The linker may replace a weak constant: the compiler must not fold its value.
  const volatile uint64_t& linked;
  bool (*is_good)(uint64_t) noexcept;
  const char* what;          // the required kind of value
  const char* for_variable;  // a good value for the variable
  const char* for_constant;
};

constinit const Setting kBytes = {
    "BEDPLATE_BOOT_BYTES",
    "bedplate_boot_bytes",
    bedplate_boot_bytes,
    [](uint64_t bytes) noexcept { return bytes >= kBootBytesMin && bytes <= kBootBytesMax; },
    "a size of segment 0",
    "a size from 8 MiB to 128 GiB, such as \"16 MiB\"",
    "from 8388608 (8 MiB) to 137438953472 (128 GiB)"};

constinit const Setting kPageBytes = {"BEDPLATE_BOOT_PAGE_BYTES",
                                      "bedplate_boot_page_bytes",
                                      bedplate_boot_page_bytes,
                                      &is_page_bytes,
                                      "a page size",
                                      "\"4 KiB\", \"2 MiB\" or \"1 GiB\"",
                                      "as 4096, 2097152 (2 MiB) or 1073741824 (1 GiB)"};

[[noreturn]] void refuse_variable(const Setting& setting, const char* text) noexcept {
  stop_with(configuration_error_while("reading the environment variable %s", setting.variable)
                .set_answer("\"%s\" is not %s", text, setting.what)
                .set_cure("set it to %s, or unset it", setting.for_variable));
}

[[noreturn]] void refuse_constant(const Setting& setting, uint64_t bytes) noexcept {
  stop_with(configuration_error_while("reading the program's constant %s", setting.constant)
                .set_answer("%" PRIu64 " is not %s", bytes, setting.what)
                .set_cure("define it %s and link again, or set %s", setting.for_constant,
                          setting.variable));
}

uint64_t value_of(const Setting& setting) noexcept {
  if (const char* text = environment_text(setting.variable)) {
    const auto parsed = parse_bytes(text);
    if (!parsed.has_value() || !setting.is_good(*parsed)) refuse_variable(setting, text);
    return *parsed;
  }
  const uint64_t bytes = setting.linked;
  if (!setting.is_good(bytes)) refuse_constant(setting, bytes);
  return bytes;
}

void refuse_unfit_sanitizer() noexcept {
  const Sanitizer sanitizer = linked_sanitizer();
  if (sanitizer.name.empty() || sanitizer.leaves_pool_range) return;
  stop_with(
      error_while("making segment 0")
          .set_answer("%s uses the pool's addresses itself", sanitizer.name.data())
          .set_cure(
              "link it with AddressSanitizer instead, or with the libraries of `make MODE=tsan` "
              "for ThreadSanitizer (docs/debugging.md)"));
}

// Warns once, before main, that the pages may be swapped out: no other code reports it.
void tell_not_locked(const Segment& segment) noexcept {
  const volatile uint64_t& linked = bedplate_has_preflight;
  if (segment.lock_errno == 0 || linked != 0) return;
  log_error(error_while("locking the heap of this program (%s)", format_bytes(segment.bytes).text)
                .set_answer_errno(segment.lock_errno)
                .set_cure("it continues, but its pages may be swapped out; %sulimit -l %" PRIu64,
                          cure_for_lock_limit(), segment.bytes / kKiB));
}

}  // namespace

PageSize boot_page() noexcept { return static_cast<PageSize>(value_of(kPageBytes)); }

uint64_t boot_segment_bytes() noexcept {
  return align_up(value_of(kBytes), std::max(kBootBytesGranularity, page_bytes(boot_page())));
}

Segment& boot_segment() noexcept {
  PinnedPool& pool = process_pool();
  if (pool.segment_count() == 0) {
    refuse_unfit_sanitizer();
    auto created = fork_rule() == ForkRule::kCopy
                       ? pool.create_private_segment("boot", boot_segment_bytes(), 1)
                       : pool.create_segment("boot", boot_segment_bytes(), boot_page(), 1);
    if (!created.ok()) stop_with(created.error());
    tell_not_locked(*created.value());
  }
  return pool.segment(0);
}

}  // namespace bedplate
