#include "alloc/boot_growth.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdlib>
#include <new>

#include "alloc/confined_heap.h"
#include "alloc/interception_decision.h"
#include "pinned_pool/boot_segment.h"

namespace bedplate {
namespace {

bool may_grow = false;

// The heap has already written the message.
[[noreturn]] void end_of_memory() { std::_Exit(static_cast<int>(ErrorKind::kSystem)); }

// The steps grow with the heap: each takes one of mimalloc's arenas, and there are only 64.
constexpr uint64_t kStepPart = 4;

uint64_t granularity(const Segment& boot) noexcept {
  return std::max(kBootBytesGranularity, page_bytes(boot.page));
}

bool add(Segment& boot, uint64_t bytes) noexcept {
  PinnedPool& pool = process_pool();
  if (!pool.grow_first_segment(bytes)) return false;
  // The heap's tables are large enough for kBootGrownBytesMax.
  return add_heap_memory(pool.carve(boot, "boot", bytes));
}

}  // namespace

void let_boot_heap_grow() noexcept {
  may_grow = interception_decision().backing != HeapBacking::kOrdinary;
  if (std::get_new_handler() == nullptr) std::set_new_handler(&end_of_memory);
}

void end_boot_growth() noexcept {
  may_grow = false;
  if (std::get_new_handler() == &end_of_memory) std::set_new_handler(nullptr);
}

bool grow_boot_heap(uint64_t bytes) noexcept {
  PinnedPool& pool = process_pool();
  if (!may_grow || pool.is_sealed() || pool.segment_count() != 1) return false;
  Segment& boot = pool.segment(0);
  const uint64_t unit = granularity(boot);
  if (bytes > kBootGrownBytesMax || boot.bytes >= kBootGrownBytesMax) return false;
  const uint64_t wanted_bytes = std::max(align_up(bytes, unit), boot.bytes / kStepPart);
  const uint64_t more_bytes = align_up(wanted_bytes, unit);
  if (more_bytes > kBootGrownBytesMax - boot.bytes) return false;
  const int errno_before = errno;
  const bool is_there = add(boot, more_bytes);
  if (is_there) errno = errno_before;
  return is_there;
}

Result<void> fix_boot_heap(uint64_t bytes) {
  may_grow = false;
  Segment& boot = boot_segment();
  Error error =
      error_while("growing segment 0 to its planned size of %s", format_bytes(bytes).text);
  if (boot.bytes > bytes) {
    return error
        .set_answer("reading the configuration and planning used %s", format_bytes(boot.bytes).text)
        .set_cure("set BEDPLATE_BOOT_BYTES=\"%s\"", format_bytes(2 * boot.bytes).text);
  }
  if (boot.bytes == bytes) return {};
  if (add(boot, bytes - boot.bytes)) return {};
  return error.set_answer_errno(errno).set_cure(
      "free memory, raise its limit, or make the configuration smaller");
}

}  // namespace bedplate
