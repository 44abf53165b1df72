#include "alloc/bad_pointer.h"

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdlib>

#include "alloc/confined_heap.h"
#include "alloc/interception_decision.h"
#include "mimalloc.h"
#include "pinned_pool/pinned_pool.h"
#include "platform/call_stack.h"
#include "platform/log.h"
#include "platform/log_limit.h"

namespace bedplate {
namespace {

std::atomic<uint64_t> bad_count{0};
OncePerSecond messages;

// Counts a bad pointer. Returns true if it should be reported.
bool count_one() noexcept {
  bad_count.fetch_add(1, std::memory_order_relaxed);
  return messages.try_pass();
}

// Every bad pointer is a defect of the program, so the report includes the call stack.
[[gnu::noinline]] void tell(Error error) noexcept {
  error.set_cure("correct the program: `addr2line -Cfpe FILE OFFSET` names each of these calls");
  log_error(error);
  log_call_stack(2);  // without this function and its report_...
  if constexpr (BP_DEBUG) std::abort();
}

// The beginning of the arena that `pointer` lies in; nullptr: it lies in none.
const std::byte* arena_of(const void* pointer) noexcept {
  for (uint32_t i = 0; i < heap_arena_count(); ++i) {
    const HeapArenaUse arena = heap_arena_use(i);
    const auto offset =
        static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - arena.address);
    if (offset < arena.bytes) return arena.address;
  }
  return nullptr;
}

const char* owner_of(const void* pointer) noexcept {
  const PinnedPool& pool = process_pool();
  for (uint32_t i = 0; i < pool.segment_count(); ++i) {
    const auto offset =
        static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - pool.segment(i).address);
    if (offset < pool.segment(i).bytes) return pool.segment(i).owner.text;
  }
  return nullptr;
}

const char* to_text(PointerUse use) noexcept {
  switch (use) {
    case PointerUse::kFree: return "freeing";
    case PointerUse::kReallocate: return "reallocating";
    case PointerUse::kAskSize: break;
  }
  return "asking for the usable size of";
}

// Sets the answer: the reason why `pointer` is no block in use. It lies in the arena that begins at
// `arena`.
void explain(const void* pointer, const std::byte* arena, Error* error) noexcept {
  const char* owner = owner_of(pointer);
  if (owner == nullptr) owner = "the ordinary heap";
  if (const void* block = ledger_block_before(pointer); block != nullptr) {
    const auto offset = static_cast<size_t>(static_cast<const std::byte*>(pointer) -
                                            static_cast<const std::byte*>(block));
    const size_t bytes = mi_usable_size(block);
    if (offset < bytes) {
      error->set_answer("it points %zu bytes into a block of %zu bytes of %s", offset, bytes,
                        owner);
      return;
    }
  }
  // An arena begins with mimalloc's record of a segment, never with a block.
  const HeapSizeClass size_class = pointer == arena ? HeapSizeClass{} : heap_size_class_at(pointer);
  if (size_class.bytes != 0 && size_class.offset_bytes == 0) {
    error->set_answer(
        "the block that began there, of %s and the size class of %zu bytes, is already free", owner,
        size_class.bytes);
  } else {
    error->set_answer("no block of %s that is in use begins there", owner);
  }
}

}  // namespace

[[gnu::noinline]] void report_bad_pointer(const void* pointer, PointerUse use) noexcept {
  if (!count_one()) return;
  Error error = error_while("%s %p", to_text(use), pointer);
  if (const std::byte* arena = arena_of(pointer); arena != nullptr) {
    explain(pointer, arena, &error);
  } else if (const char* owner = owner_of(pointer); owner != nullptr) {
    error.set_answer("it does not belong to the heap: it lies in %s", owner);
  } else {
    error.set_answer("it does not belong to the pool");
  }
  tell(error);
}

[[gnu::noinline]] void report_bad_size(const void* block, size_t deleted_bytes) noexcept {
  if (!count_one()) return;
  const char* owner = owner_of(block);
  tell(error_while("deleting %p as an object of %zu bytes", block, deleted_bytes)
           .set_answer("its block, of %s, has %zu bytes",
                       owner != nullptr ? owner : "ordinary memory", mi_usable_size(block)));
}

[[gnu::noinline]] void report_heap_damage(int error_number) noexcept {
  if (!count_one()) return;
  tell(error_while("checking the heap's own lists")
           .set_answer("%s (%s)",
                       error_number == EFAULT
                           ? "a block was written beyond its end, or after it was freed"
                           : "mimalloc received a pointer that is not a block",
                       strerrorname_np(error_number)));
}

uint64_t bad_pointer_count() noexcept { return bad_count.load(std::memory_order_relaxed); }

bool is_block_outside_pool(const void* pointer, PointerUse use) noexcept {
  if (pointer == nullptr) return false;
  const bool is_ordinary = interception_decision().backing == HeapBacking::kOrdinary;
  if (is_ordinary && arena_of(pointer) != nullptr) return true;
  report_bad_pointer(pointer, use);
  return false;
}

}  // namespace bedplate
